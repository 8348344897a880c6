"""One seed of a run, advanced step by step by a caller that may end it early."""

import contextlib
import functools
import time
from pathlib import Path

from natmix.engine.checkpoint_schedule import CHECKPOINT_SECONDS
from natmix.engine.chunk_runner import ChunkRunner
from natmix.engine.clock import Clock
from natmix.engine.convergence import CHECK_EVERY
from natmix.engine.fit_loop import FitLoop
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.config import RunConfig
from natmix.experiments.runs.directory import ENVIRONMENT, SeedFiles, fingerprint, prepare, restore
from natmix.experiments.runs.environment import environment
from natmix.experiments.runs.execution import LOCKS, check_budget, is_finished
from natmix.experiments.runs.seed import Seed
from natmix.experiments.runs.watcher import SeedSnapshot, Silence
from natmix.files.lock import lock
from natmix.files.saving import Saving
from natmix.files.seal import ENVIRONMENT as ENVIRONMENT_FORMAT
from natmix.files.sealed_json import write_sealed_json
from natmix.interrupts import Interrupt
from natmix.targets.failures import FAILURES


class StepwiseSeed:
    """A seed in a run directory, as `natmix.experiments.runs.execute` writes it.

    It goes on from its checkpoint if there is one. Until `close` no other process may run it.

    Attributes:
        number: the seed.
        ended: whether it has final numbers or has failed.
        failure: why it could not go on, if it could not.
    """

    def __init__(
        self,
        config: RunConfig,
        number: int,
        out: Path,
        problem: Problem,
        interrupt: Interrupt,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        check_budget(config)
        self.number = number
        self.failure = ""
        self._seen = _LastSnapshot()
        joint, where = prepare(out, config.to_json(), [number]), environment()
        self._files = SeedFiles(out, number)
        with contextlib.ExitStack() as held:
            if not held.enter_context(lock(out / LOCKS / f"seed-{number}", wait=False)):
                raise ValueError(f"Seed {number} in {out} is being run by another process; wait for it.")
            self.ended = is_finished(out, number, config.limits, fingerprint(joint))
            if not self.ended:
                write_sealed_json(out / ENVIRONMENT, ENVIRONMENT_FORMAT, where)
                self._saving = Saving(out, functools.partial(restore, out, joint, where))
                self._begin(config, problem, interrupt, checkpoint_seconds)
            self._held = held.pop_all()

    def _begin(
        self, config: RunConfig, problem: Problem, interrupt: Interrupt, checkpoint_seconds: float
    ) -> None:
        clock = Clock()
        self._seed = Seed(
            self.number,
            problem,
            config,
            self._files,
            clock,
            self._seen,
            self._saving,
            checkpoint_seconds,
            False,
        )
        most = config.algorithm.component_adaptation.most_components(config.components)
        runner = ChunkRunner(config.algorithm, problem.target, most)
        rule_every = (CHECK_EVERY,) if config.limits.until_converged else ()
        self._loop = FitLoop(runner, [self._seed.run], interrupt, rule_every, FAILURES)

    @property
    def snapshot(self) -> SeedSnapshot | None:
        """How far it was after the last chunk; None before the first."""
        return self._seen.last

    def advance(self, seconds: float) -> None:
        """Advance by chunks until about so many seconds are over, or the seed has ended."""
        if self.ended:
            return
        until = time.perf_counter() + seconds
        self._loop.run(lambda states: time.perf_counter() < until)
        if self._loop.failure is not None:
            self._loop.fail_active()
        self._note_end()

    def stop(self, reason: str) -> None:
        """End it now, with final numbers."""
        if self.ended:
            return
        run = self._seed.run
        run.stopped = reason
        for recorder in run.recorders:
            recorder.finished(run)
        self._note_end()

    def close(self) -> None:
        """Leave a checkpoint, if it has not ended, and let others run it."""
        try:
            if not self.ended and not self._loop.broken_off and self._seed.run.iterations:
                self._seed.checkpoint()
        finally:
            self._held.close()

    def _note_end(self) -> None:
        run = self._seed.run
        if run.stopped is None:
            return
        self.ended, self.failure = True, "" if run.failure is None else str(run.failure)
        self._saving.finish()


class _LastSnapshot(Silence):
    """Keeps how far a seed is."""

    def __init__(self) -> None:
        self.last: SeedSnapshot | None = None

    def update(self, snapshot: SeedSnapshot) -> None:
        self.last = snapshot
