"""One seed of a run: where it starts or goes on, and the recorders that observe it."""

import logging

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
from natmix.experiments.runs.elbo_evaluation import EvaluationRecorder
from natmix.experiments.runs.final import FinalRecorder, KeptRecords
from natmix.experiments.runs.history import TraceRecorder, WeightRecorder
from natmix.experiments.runs.watcher import Watcher, WatcherRecorder
from natmix.files.generations import exists, set_aside
from natmix.files.saving import Saving
from natmix.files.seal import DamagedFileError
from natmix.mixture import Mixture
from natmix.random_keys import split_keys

logger = logging.getLogger("natmix")


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
    ) -> None:
        self.number, self.problem = number, problem
        self._config, self._files = config, files
        self._owner = Owner(seed=number, run=fingerprint(config.to_json()))
        resumed = exists(files.checkpoint)
        anew = files.folder.is_dir() and not resumed
        key_run, key_start, key_elbo = split_keys(jax.random.key(np.uint32(number)), 3)
        saving.attempt(files.create)
        files.tidy()
        self._trace, self._weights = TraceRecorder(), WeightRecorder()
        self._evaluations = EvaluationRecorder(files.metrics, problem.reference, key_elbo, saving)
        self._rule = StoppingRule(config.algorithm, config.components)
        self._seeds_together = 1

        began = clock.read()
        mixture, prior = config.start.mixture(
            key_start, config.components, jnp.dtype(config.dtype), config.covariance
        )
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
            files, self._owner, saving, checkpoint_seconds, keep_checkpoint, self._records
        )
        told = WatcherRecorder(watcher, number, anew, self._evaluations, self._final)
        rules: list[Recorder] = [self._rule] if config.limits.until_converged else []
        kept = (self._trace, *rules, self._evaluations, self._weights, self._checkpoints)
        self.run.recorders = (*kept, self._final, told)

    def checkpoint(self) -> None:
        """Write down everything needed to go on."""
        self._checkpoints.save(self.run)

    def joined_by(self, seeds: int) -> None:
        """It runs in a batch of so many seeds."""
        self._final.seeds_together = max(self._final.seeds_together, seeds)

    def _fresh(
        self, key: jax.Array, mixture: Mixture, prior: Mixture, clock: Clock, began: float
    ) -> SingleRun:
        config = self._config
        capacity = initial_capacity(config.algorithm, config.components, mixture.dim)
        state = config.algorithm.init(key, mixture, prior, capacity)
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
            run = SingleRun(state, self._config.limits, clock)
            run.restore(dict(stored.progress))
            self._trace = TraceRecorder(stored.trace)
            self._rule.replay(stored.trace)
            self._weights = WeightRecorder(stored.weights, stored.progress["weight_stride"])
            self._evaluations.rows = stored.evaluations
            self._evaluations.next_seconds = stored.progress["next_evaluation"]
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
