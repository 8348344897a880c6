"""The progress of a fit in a small sealed file beside its checkpoints: what `natmix watch` shows of it."""

import functools
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float

from natmix.engine.progress_line import Spent
from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.engine.trajectory import TrajectoryRecorder
from natmix.files.schema import SchemaError, conform
from natmix.files.seal import FIT_PROGRESS, DamagedFileError
from natmix.files.sealed_json import read_sealed_json, write_sealed_json

PROGRESS = "progress.json"
"""Its name in the folder of the checkpoints."""
COMPILING, RUNNING, CHECKING = "compiling", "running", "checking"
"""Phases of a fit; at its end there is `Result.stopped` instead."""
MOST_POINTS = 240
"""Of a curve: as many as a screen shows."""
_SECONDS = 2.0
_COST_SHARE = 20
"""Writing takes at most about one part in so many of the time."""


class ProgressCurves(TypedDict):
    """Numbers over the iterations, at most `MOST_POINTS` of each; None where there is no finite one."""

    iterations: list[int]
    evaluations: list[int]
    seconds: list[float]
    elbo: list[float | None]
    kl: list[float | None]
    components: list[int]


class FitProgress(TypedDict):
    """How far a fit is.

    Attributes:
        algorithm: its codename.
        dim: of the target.
        accuracy: KL at which the fit ends.
        limits: of iterations, evaluations and seconds.
        phase: one of the phases, or why the fit ended.
        share: of the limit that is reached first.
        seconds_left: until then at the present rate; None without limits.
        written: when, in seconds since 1970.
        host: the machine of the fit.
        process: its number there.
        notes: of the result, at the end.
        curves: over the iterations.
    """

    algorithm: str
    dim: int
    accuracy: float | None
    limits: dict[str, float | None]
    phase: str
    iterations: int
    evaluations: int
    components: int
    seconds: float
    share: float
    seconds_left: float | None
    written: float
    host: str
    process: int
    notes: list[str]
    curves: ProgressCurves


class ProgressFile(Recorder):
    """Writes the file about every two seconds, at every pause and at the end.

    Args:
        path: of the file.
        attempt: calls a function that writes, where that may not be possible.
    """

    def __init__(self, path: Path, attempt: Callable[[Callable[[], object]], bool]) -> None:
        self._path, self._attempt = path, attempt
        self._last: FitProgress | None = None
        self._next = 0.0
        self._algorithm, self._dim = "", 0
        self._accuracy: float | None = None
        self._trajectory = TrajectoryRecorder()
        self._first_evaluations = 0

    def follow(
        self,
        algorithm: str,
        dim: int,
        accuracy: float | None,
        trajectory: TrajectoryRecorder,
        first_evaluations: int,
    ) -> "ProgressFile":
        """Note whose progress it is; returns the recorder, which comes after the trajectory's."""
        self._algorithm, self._dim, self._accuracy = algorithm, dim, accuracy
        self._trajectory, self._first_evaluations = trajectory, first_evaluations
        return self

    def started(self, run: SingleRun) -> None:
        self._write(run, RUNNING if run.iterations else COMPILING)

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        if run.stopped is None and time.perf_counter() >= self._next:
            self._write(run, RUNNING)

    def finished(self, run: SingleRun) -> None:
        self._write(run, CHECKING)

    def end(self, stopped: str, evaluations: int, notes: Sequence[str]) -> None:
        """Write how the fit ended, after so many evaluations in all."""
        if self._last is not None:
            now = {"phase": stopped, "evaluations": evaluations, "notes": list(notes), "written": time.time()}
            last: Any = self._last | now
            self._attempt(functools.partial(write_progress, self._path, last))

    def _write(self, run: SingleRun, phase: str) -> None:
        with run.clock.pause():
            before = time.perf_counter()
            self._last = self._progress(run, phase)
            self._attempt(functools.partial(write_progress, self._path, self._last))
            now = time.perf_counter()
            self._next = now + max(_SECONDS, _COST_SHARE * (now - before))

    def _progress(self, run: SingleRun, phase: str) -> FitProgress:
        spent, limits = Spent.of(run), run.limits
        return FitProgress(
            algorithm=self._algorithm,
            dim=self._dim,
            accuracy=None if self._accuracy is None else float(self._accuracy),
            limits={
                "max_iterations": limits.max_iterations,
                "max_evaluations": limits.max_evaluations,
                "max_seconds": limits.max_seconds,
            },
            phase=phase,
            iterations=run.iterations,
            evaluations=self._first_evaluations + run.evaluations,
            components=run.components,
            seconds=run.seconds,
            share=spent.share,
            seconds_left=spent.seconds_left if math.isfinite(spent.seconds_left) else None,
            written=time.time(),
            host=platform.node(),
            process=os.getpid(),
            notes=[],
            curves=curves_of(self._trajectory.arrays(), self._first_evaluations),
        )


def write_progress(path: Path, progress: FitProgress) -> None:
    """Write the file in one step."""
    write_sealed_json(path, FIT_PROGRESS, progress)


def read_progress(path: Path) -> FitProgress:
    """The content of the file, checked.

    Raises:
        DamagedFileError: it is not what was written.
        FileNotFoundError: there is none.
    """
    try:
        found: FitProgress = conform(FitProgress, read_sealed_json(path, FIT_PROGRESS)[0], "")
    except SchemaError as error:
        raise DamagedFileError(f"{path} is damaged: {error}.") from error
    if len({len(values) for values in found["curves"].values()}) > 1:  # type: ignore[arg-type]
        raise DamagedFileError(f"{path} is damaged: its curves are not equally long.")
    return found


def curves_of(trajectory: Mapping[str, np.ndarray], first_evaluations: int) -> ProgressCurves:
    """The curves of a trajectory: means over equally many iterations, counts at the end of them."""
    n = len(trajectory["elbo"]) if trajectory else 0
    ends = np.unique(np.linspace(0, n, min(n, MOST_POINTS) + 1).astype(int))[1:]
    at = ends - 1
    if n == 0:
        return ProgressCurves(iterations=[], evaluations=[], seconds=[], elbo=[], kl=[], components=[])
    starts = np.concatenate([[0], ends[:-1]])
    total = first_evaluations + np.cumsum(trajectory["evaluations"].astype(np.int64))
    return ProgressCurves(
        iterations=ends.tolist(),
        evaluations=total[at].tolist(),
        seconds=np.asarray(trajectory["seconds"], float)[at].tolist(),
        elbo=finite_means(np.asarray(trajectory["elbo"], float), starts),
        kl=finite_means(np.asarray(trajectory["kl"], float), starts),
        components=trajectory["components"].astype(int)[at].tolist(),
    )


def finite_means(values: Float[np.ndarray, " N"], starts: np.ndarray) -> list[float | None]:
    """Means of the finite values from each start to the next one; None where there are none."""
    finite = np.isfinite(values)
    sums = np.add.reduceat(np.where(finite, values, 0.0), starts)
    counts = np.add.reduceat(finite.astype(int), starts)
    return [float(s / n) if n else None for s, n in zip(sums, counts, strict=True)]
