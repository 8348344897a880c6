"""What is written down while a seed runs: every iteration's numbers, and the weights now and then."""

import dataclasses

import numpy as np

MOST_ROWS = 300
"""Of the weights: with more, every second one goes and the distance between them doubles."""


@dataclasses.dataclass(frozen=True)
class WeightHistory:
    """Component weights over time; row t is ``weights[offsets[t]:offsets[t + 1]]``.

    Attributes:
        iterations: [T], after which the weights were taken.
        offsets: [T + 1].
        ids: of the components, in order of birth: a component keeps its number.
        weights: of these components.
    """

    iterations: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.iterations)

    def at(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """(ids, weights) of row ``t``."""
        if t < 0:
            t += len(self)
        row = slice(self.offsets[t], self.offsets[t + 1])
        return self.ids[row], self.weights[row]

    def arrays(self) -> dict[str, np.ndarray]:
        """As they are stored."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def from_rows(cls, rows: list[tuple[int, np.ndarray, np.ndarray]]) -> "WeightHistory":
        """From (iteration, ids, weights)."""
        lengths = [len(ids) for _, ids, _ in rows]
        return cls(
            np.array([iteration for iteration, _, _ in rows], np.int64),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.concatenate([np.zeros(0, np.int32), *(ids for _, ids, _ in rows)]),
            np.concatenate([np.zeros(0, np.float32), *(weights for _, _, weights in rows)]),
        )


class WeightRecorder:
    """Keeps the weights of at most `MOST_ROWS` iterations, about evenly spread."""

    def __init__(self, history: WeightHistory | None = None, stride: int = 1) -> None:
        self.stride = stride
        self.rows: list[tuple[int, np.ndarray, np.ndarray]] = []
        if history is not None:
            self.rows = [(int(i), *history.at(t)) for t, i in enumerate(history.iterations)]

    def due(self, iteration: int) -> bool:
        """Whether the weights after this iteration should be recorded."""
        return not self.rows or iteration // self.stride > self.rows[-1][0] // self.stride

    def record(self, iteration: int, ids: np.ndarray, log_weights: np.ndarray) -> None:
        """The weights after ``iteration``; absent components have log weight -inf."""
        exists = log_weights > -np.inf
        order = np.argsort(ids[exists])
        weights = np.exp(log_weights[exists].astype(np.float32))
        self.rows.append((iteration, ids[exists][order].astype(np.int32), weights[order]))
        if len(self.rows) > MOST_ROWS:
            self.rows = self.rows[::2]
            self.stride *= 2

    def history(self) -> WeightHistory:
        """All of it."""
        return WeightHistory.from_rows(self.rows)


class Trace:
    """Every iteration's numbers."""

    def __init__(self, arrays: dict[str, np.ndarray] | None = None) -> None:
        self._chunks: list[dict[str, np.ndarray]] = [] if arrays is None else [arrays]

    def append(self, infos: dict[str, np.ndarray], before: float, after: float) -> None:
        """The iterations of a chunk that lasted from ``before`` to ``after`` on the run's clock."""
        n = len(infos["elbo"])
        self._chunks.append({**infos, "seconds": np.linspace(before, after, n + 1)[1:].astype(np.float32)})

    def arrays(self) -> dict[str, np.ndarray]:
        """Name to values, one per iteration."""
        if len(self._chunks) > 1:
            joined = {k: np.concatenate([c[k] for c in self._chunks]) for k in self._chunks[0]}
            self._chunks = [joined]
        return self._chunks[0] if self._chunks else {}
