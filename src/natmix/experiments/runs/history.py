"""What is kept of a seed's run: every iteration's numbers, and the weights now and then."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.engine.trajectory import TrajectoryRecorder
from natmix.files.arrays import read_arrays, write_arrays
from natmix.files.seal import TRACE, WEIGHTS, DamagedFileError

MOST_RECORDS = 300
"""Of the weights: with more, every second one goes and the distance between them doubles."""

_WEIGHT_ERROR = 1e-3


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

    def __init__(self, history: WeightHistory | None = None, stride: int = 1) -> None:
        """Start anew, or go on after a stored history.

        Args:
            history: what is stored.
            stride: iterations between two records.
        """
        self.stride = stride
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


class TraceRecorder(TrajectoryRecorder):
    """The trajectory as it is stored."""

    def stored(self) -> dict[str, np.ndarray]:
        """Name to values, one per iteration; the clock in single precision."""
        arrays = self.arrays()
        return {k: a.astype(np.float32) if k == "seconds" else a for k, a in arrays.items()}


def write_trace(path: Path, trace: Mapping[str, np.ndarray]) -> str:
    """Write every iteration's numbers; returns the checksum."""
    return write_arrays(path, TRACE, trace, {})


def write_weights(path: Path, history: WeightHistory) -> str:
    """Write the weights over time; returns the checksum."""
    return write_arrays(path, WEIGHTS, history.arrays(), {})


def read_trace(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """What `write_trace` wrote, and the checksum."""
    content = read_arrays(path, TRACE)
    return checked_trace(path, content.arrays), content.digest


def read_weights(path: Path) -> tuple[WeightHistory, str]:
    """What `write_weights` wrote, and the checksum."""
    content = read_arrays(path, WEIGHTS)
    return checked_weights(path, content.arrays), content.digest


def checked_trace(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same, if it is one number per name and iteration."""
    lengths = {array.shape for array in arrays.values()}
    if len(lengths) > 1 or any(len(shape) != 1 for shape in lengths):
        raise DamagedFileError(f"{path} is damaged: the arrays of its trace are not equally long.")
    return arrays


def checked_weights(path: Path, arrays: Mapping[str, np.ndarray]) -> WeightHistory:
    """The history of these arrays, if every record is a distribution."""
    names = [f.name for f in dataclasses.fields(WeightHistory)]
    if set(arrays) != set(names) or any(array.ndim != 1 for array in arrays.values()):
        raise DamagedFileError(f"{path} is damaged: it does not hold the arrays {', '.join(names)}.")
    history = WeightHistory(**arrays)
    offsets, iterations, weights = history.offsets, history.iterations, history.weights
    whole = all(array.dtype.kind in "iu" for array in (offsets, iterations, history.ids))
    lengths = len(offsets) == len(iterations) + 1 and len(history.ids) == len(weights)
    if not whole or not lengths or weights.dtype.kind != "f":
        raise DamagedFileError(f"{path} is damaged: its history of weights is incomplete.")
    ends = offsets[0] == 0 and offsets[-1] == len(weights) and np.all(np.diff(offsets) > 0)
    if not ends or np.any(np.diff(iterations) <= 0) or np.any(iterations < 0):
        raise DamagedFileError(f"{path} is damaged: the records of its weights are not in order.")
    sums = np.add.reduceat(weights.astype(float), offsets[:-1]) if len(weights) else np.ones(0)
    if not np.all(weights >= 0) or not np.all(np.abs(sums - 1) <= _WEIGHT_ERROR):
        raise DamagedFileError(f"{path} is damaged: it holds weights that do not sum to one.")
    return history
