"""Who is told how the seeds of a run go."""

import dataclasses
from typing import Any, Protocol

from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.experiments.runs.elbo_evaluation import EvaluationRecorder
from natmix.experiments.runs.final import FinalRecorder


@dataclasses.dataclass(frozen=True)
class SeedSnapshot:
    """What there is to show of a seed."""

    seed: int
    iterations: int
    evaluations: int
    components: int
    seconds: float
    neg_elbo: float | None
    """None before the first evaluation of the ELBO."""
    neg_elbo_se: float | None


class Watcher(Protocol):
    """Is told how the seeds of a run directory go."""

    def skipped(self, seed: int) -> None:
        """The seed had finished before."""

    def started(self, seed: int, resumed_at: int, anew: bool) -> None:
        """The seed starts (``anew``: again, it left no checkpoint), or goes on after so many iterations."""

    def update(self, snapshot: SeedSnapshot) -> None:
        """After every chunk."""

    def finished(self, snapshot: SeedSnapshot, final: dict[str, Any]) -> None:
        """The seed has its final numbers."""

    def failed(self, seed: int, error: str) -> None:
        """The seed could not go on."""


class Silence:
    """A watcher that does nothing."""

    def skipped(self, seed: int) -> None: ...
    def started(self, seed: int, resumed_at: int, anew: bool) -> None: ...
    def update(self, snapshot: SeedSnapshot) -> None: ...
    def finished(self, snapshot: SeedSnapshot, final: dict[str, Any]) -> None: ...
    def failed(self, seed: int, error: str) -> None: ...


class WatcherRecorder(Recorder):
    """Tells a watcher how one seed goes."""

    def __init__(
        self, watcher: Watcher, seed: int, anew: bool, evaluations: EvaluationRecorder, final: FinalRecorder
    ) -> None:
        self._watcher, self._seed, self._anew = watcher, seed, anew
        self._evaluations, self._final = evaluations, final

    def started(self, run: SingleRun) -> None:
        self._watcher.started(self._seed, run.iterations, self._anew)

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        self._watcher.update(self._snapshot(run))

    def finished(self, run: SingleRun) -> None:
        self._watcher.finished(self._snapshot(run), self._final.final)

    def failed(self, run: SingleRun) -> None:
        self._watcher.failed(self._seed, str(run.failure))

    def _snapshot(self, run: SingleRun) -> SeedSnapshot:
        rows = self._evaluations.rows
        elbo = (rows[-1]["neg_elbo"], rows[-1]["neg_elbo_se"]) if rows else (None, None)
        return SeedSnapshot(self._seed, run.iterations, run.evaluations, run.components, run.seconds, *elbo)
