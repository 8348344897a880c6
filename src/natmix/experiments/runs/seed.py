"""One seed of a run: where it starts or goes on, and the recorders that observe it."""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natmix.engine.capacity import initial_capacity
from natmix.engine.clock import Clock
from natmix.engine.convergence import StoppingRule
from natmix.engine.recorder import Recorder
from natmix.engine.single_run import SingleRun
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.checkpoint import Owner, Records, load_checkpoint, progress_of
from natmix.experiments.runs.checkpointing import CheckpointRecorder
from natmix.experiments.runs.config import RunConfig
from natmix.experiments.runs.directory import SeedFiles, fingerprint
from natmix.experiments.runs.elbo_evaluation import EvaluationRecorder, EvaluationTimes, Judge
from natmix.experiments.runs.final import FinalRecorder, KeptRecords
from natmix.experiments.runs.history import TraceRecorder, WeightRecorder
from natmix.experiments.runs.watcher import Watcher, WatcherRecorder
from natmix.files.generations import exists, set_aside
from natmix.files.saving import Saving
from natmix.files.seal import DamagedFileError
from natmix.gmmvi import GMMVI
from natmix.mixture import Mixture
from natmix.random_keys import split_keys

logger = logging.getLogger("natmix")


class StateForm(NamedTuple):
    """The shapes of a seed's state that shares a compiled program with other runs; checkpoints have its own.

    Attributes:
        algorithm: that advances it: the masked one of the configuration (`GMMVI.masked`).
        slots: for components at first.
    """

    algorithm: GMMVI
    slots: int


class Guard(Recorder):
    """A recorder that may end a seed, and whose judgement depends on the earlier iterations alone."""

    def replay(self, trace: Mapping[str, np.ndarray]) -> None:
        """Take note of the iterations before a checkpoint."""


class Seed:
    """One seed of a run.

    Attributes:
        number: the seed.
        problem: its problem.
        run: what the engine drives.
    """

    def __init__(
        self,
        number: int,
        problem: Problem,
        config: RunConfig,
        files: SeedFiles,
        clock: Clock,
        watcher: Watcher,
        saving: Saving,
        checkpoint_seconds: float,
        keep_checkpoint: bool,
        form: StateForm | None = None,
        times: EvaluationTimes | None = None,
        guards: Sequence[Guard] = (),
        judge: Judge = lambda row: None,
    ) -> None:
        """Start it, or go on from its checkpoint.

        Args:
            number: the seed.
            problem: its problem.
            config: of the run.
            files: where it writes.
            clock: shared with the seeds that run with it.
            watcher: is told how it goes.
            saving: writes files.
            checkpoint_seconds: between checkpoints.
            keep_checkpoint: also at the end.
            form: of its state, if that is not the configuration's own.
            times: of evaluations of the ELBO; if left out, they come by the clock.
            guards: recorders that may end it, told before the others.
            judge: is told every evaluation of the ELBO, and may end it.
        """
        self.number, self.problem, self._form = number, problem, form
        self._config, self._files = config, files
        self._owner = Owner(seed=number, run=fingerprint(config.to_json()))
        resumed = exists(files.checkpoint)
        anew = files.folder.is_dir() and not resumed
        key_run, key_start, key_elbo = split_keys(jax.random.key(np.uint32(number)), 3)
        saving.attempt(files.create)
        files.tidy()
        self._trace, self._weights = TraceRecorder(), WeightRecorder()
        self._evaluations = EvaluationRecorder(
            files.metrics, problem.reference, key_elbo, saving, times, judge
        )
        self._rule, self._guards = StoppingRule(config.algorithm, config.components), tuple(guards)
        self._seeds_together = 1

        began = clock.read()
        mixture, prior = self._start(key_start)
        self.run = (
            self._resumed(mixture, prior, clock)
            if resumed
            else self._fresh(key_run, mixture, prior, clock, began)
        )
        files.failed.unlink(missing_ok=True)
        files.final.unlink(missing_ok=True)
        records = KeptRecords(self._trace, self._weights, self._evaluations)
        self._final = FinalRecorder(self._owner, problem, files, key_elbo, records, saving, keep_checkpoint)
        self._final.seeds_together = self._seeds_together
        self._checkpoints = CheckpointRecorder(
            files,
            self._owner,
            saving,
            checkpoint_seconds,
            keep_checkpoint,
            self._records,
            self._config.algorithm.fitted if form is not None else lambda state: state,
        )
        told = WatcherRecorder(watcher, number, anew, self._evaluations, self._final)
        rules: list[Recorder] = [self._rule] if config.limits.until_converged else []
        kept = (self._trace, *rules, self._evaluations, self._weights, self._checkpoints)
        self.run.recorders = (*self._guards, *kept, self._final, told)

    def checkpoint(self) -> None:
        """Write down everything needed to go on."""
        self._checkpoints.save(self.run)

    def joined_by(self, seeds: int) -> None:
        """It runs in a batch of so many seeds."""
        self._final.seeds_together = max(self._final.seeds_together, seeds)

    @property
    def neg_elbo(self) -> float | None:
        """Of the last evaluation; None before the first."""
        rows = self._evaluations.rows
        return rows[-1]["neg_elbo"] if rows else None

    @property
    def _algorithm(self) -> GMMVI:
        return self._config.algorithm if self._form is None else self._form.algorithm

    def _start(self, key: jax.Array) -> tuple[Mixture, Mixture]:
        """The initial mixture and the prior."""
        config, dtype = self._config, jnp.dtype(self._config.dtype)
        if self._form is None:
            return config.start.mixture(key, config.components, dtype, config.covariance)
        return config.start.padded_mixture(key, config.components, self._form.slots, dtype, config.covariance)

    def _fresh(
        self, key: jax.Array, mixture: Mixture, prior: Mixture, clock: Clock, began: float
    ) -> SingleRun:
        config = self._config
        capacity = (
            initial_capacity(config.algorithm, config.components, mixture.dim)
            if self._form is None
            else self._form.slots
        )
        state = self._algorithm.init(key, mixture, prior, capacity)
        run = SingleRun(state, config.limits, clock, components=config.components)
        run.set_clock(clock.read() - began)
        return run

    def _resumed(self, mixture: Mixture, prior: Mixture, clock: Clock) -> SingleRun:
        """From the checkpoint alone; what was written after it will be written again."""
        with clock.pause():
            path = self._files.checkpoint
            try:
                state, stored, why = load_checkpoint(
                    path, self._config.algorithm, mixture, prior, self._owner
                )
            except DamagedFileError as error:
                raise DamagedFileError(
                    f"{error} To begin seed {self.number} anew, remove its folder."
                ) from error
            if why:
                logger.warning(
                    "Seed %d goes on from the checkpoint before the last, after %d iterations: %s",
                    self.number,
                    stored.progress["iterations"],
                    why,
                )
                set_aside(path)
            state = state if self._form is None else self._form.algorithm.fitted(state)
            run = SingleRun(state, self._config.limits, clock)
            run.restore(dict(stored.progress))
            self._trace = TraceRecorder(stored.trace)
            self._rule.replay(stored.trace)
            for guard in self._guards:
                guard.replay(stored.trace)
            self._weights = WeightRecorder(stored.weights, stored.progress["weight_stride"])
            self._evaluations.restore(stored.evaluations, stored.progress["next_evaluation"])
            self._seeds_together = stored.progress["seeds_together"]
        run.set_clock(run.seconds)
        return run

    def _records(self) -> Records:
        progress = {
            **self.run.progress(),
            "next_evaluation": self._evaluations.next_seconds,
            "weight_stride": self._weights.stride,
            "seeds_together": self._final.seeds_together,
        }
        return Records(
            progress_of(progress),
            self._trace.stored(),
            self._weights.history(),
            list(self._evaluations.rows),
        )
