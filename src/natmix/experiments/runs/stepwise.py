"""One seed of a run, advanced step by step by a caller that may end it early."""

import contextlib
import functools
import time
from collections.abc import Sequence
from pathlib import Path

from natmix.engine.checkpoint_schedule import CHECKPOINT_SECONDS
from natmix.engine.chunk_runner import ChunkRunner
from natmix.engine.clock import Clock
from natmix.engine.convergence import CHECK_EVERY
from natmix.engine.fit_loop import FitLoop
from natmix.engine.single_run import SingleRun
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.config import RunConfig
from natmix.experiments.runs.directory import ENVIRONMENT, SeedFiles, fingerprint, prepare, restore
from natmix.experiments.runs.elbo_evaluation import EvaluationTimes, Judge
from natmix.experiments.runs.environment import environment
from natmix.experiments.runs.execution import LOCKS, check_budget, is_finished
from natmix.experiments.runs.seed import Guard, Seed
from natmix.experiments.runs.watcher import Silence
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
        failure: the error by which it could not go on, if it could not.
    """

    def __init__(
        self,
        config: RunConfig,
        number: int,
        out: Path,
        problem: Problem,
        interrupt: Interrupt,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        times: EvaluationTimes | None = None,
        guards: Sequence[Guard] = (),
        judge: Judge = lambda row: None,
    ) -> None:
        """Start it, or go on from its checkpoint; the arguments are those of `Seed`."""
        check_budget(config)
        self.number = number
        self.failure: Exception | None = None
        self._times, self._guards, self._judge = times, guards, judge
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
            Silence(),
            self._saving,
            checkpoint_seconds,
            False,
            times=self._times,
            guards=self._guards,
            judge=self._judge,
        )
        most = config.algorithm.component_adaptation.most_components(config.components)
        runner = ChunkRunner(config.algorithm, problem.target, most)
        ends: tuple[int, ...] = (CHECK_EVERY,) if config.limits.until_converged else ()
        ends += () if self._times is None else (self._times.every,)
        self._loop = FitLoop(runner, [self._seed.run], interrupt, ends, FAILURES)

    @property
    def run(self) -> SingleRun:
        """How far it is, unless it had ended before."""
        return self._seed.run

    @property
    def neg_elbo(self) -> float | None:
        """Of the last evaluation; None before the first."""
        return self._seed.neg_elbo

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
        self.ended, self.failure = True, run.failure
        self._saving.finish()
