"""What is written down while a seed runs: every iteration's numbers, and the weights now and then."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.engine.trajectory import TrajectoryRecorder
from natmix.files import write_arrays

MOST_RECORDS = 300
"""Of the weights: with more, every second one goes and the distance between them doubles."""


@dataclasses.dataclass(frozen=True)
class WeightHistory:
    """Component weights over time; record t is ``weights[offsets[t]:offsets[t + 1]]``.

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
        """(ids, weights) of record ``t``."""
        if t < 0:
            t += len(self)
        record = slice(self.offsets[t], self.offsets[t + 1])
        return self.ids[record], self.weights[record]

    def arrays(self) -> dict[str, np.ndarray]:
        """As they are stored."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def from_rows(cls, records: list[tuple[int, np.ndarray, np.ndarray]]) -> "WeightHistory":
        """From (iteration, ids, weights)."""
        lengths = [len(ids) for _, ids, _ in records]
        return cls(
            np.array([iteration for iteration, _, _ in records], np.int64),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.concatenate([np.zeros(0, np.int32), *(ids for _, ids, _ in records)]),
            np.concatenate([np.zeros(0, np.float32), *(weights for _, _, weights in records)]),
        )


class WeightRecorder(Recorder):
    """Keeps the weights of at most `MOST_RECORDS` iterations, about evenly spread.

    They are taken where chunks end, so which iterations these are depends on the clock.
    """

    def __init__(self, path: Path, history: WeightHistory | None = None, stride: int = 1) -> None:
        """Start anew, or go on after a stored history.

        Args:
            path: the file for `write`.
            history: what is stored.
            stride: iterations between two records.
        """
        self.stride = stride
        self._path = path
        self._records: list[tuple[int, np.ndarray, np.ndarray]] = []
        if history is not None:
            self._records = [(int(i), *history.at(t)) for t, i in enumerate(history.iterations)]

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        if self.due(run.iterations):
            self._record(run)

    def finished(self, run: SingleRun) -> None:
        if not self._records or self._records[-1][0] != run.iterations:
            self._record(run)

    def _record(self, run: SingleRun) -> None:
        self.record(run.iterations, np.asarray(run.state.ids), np.asarray(run.state.mixture.log_weights))

    def due(self, iteration: int) -> bool:
        """Whether the weights after this iteration should be recorded."""
        return not self._records or iteration // self.stride > self._records[-1][0] // self.stride

    def record(self, iteration: int, ids: np.ndarray, log_weights: np.ndarray) -> None:
        """The weights after ``iteration``; absent components have log weight -inf."""
        exists = log_weights > -np.inf
        order = np.argsort(ids[exists])
        weights = np.exp(log_weights[exists].astype(np.float32))
        self._records.append((iteration, ids[exists][order].astype(np.int32), weights[order]))
        if len(self._records) > MOST_RECORDS:
            self._records = self._records[::2]
            self.stride *= 2

    def history(self) -> WeightHistory:
        """All of it."""
        return WeightHistory.from_rows(self._records)

    def write(self) -> None:
        """To the file."""
        write_arrays(self._path, self.history().arrays())


class TraceRecorder(TrajectoryRecorder):
    """The trajectory, in a file."""

    def __init__(self, path: Path, stored: Mapping[str, np.ndarray] | None = None) -> None:
        super().__init__(stored)
        self._path = path

    def write(self) -> None:
        """To the file."""
        arrays = self.arrays()
        if arrays:
            arrays["seconds"] = arrays["seconds"].astype(np.float32)
        write_arrays(self._path, arrays)
