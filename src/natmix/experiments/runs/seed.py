"""One seed of a run: where it starts or goes on, and the recorders that write its files."""

import jax
import jax.numpy as jnp
import numpy as np

from natmix.engine.capacity import initial_capacity
from natmix.engine.clock import Clock
from natmix.engine.convergence import StoppingRule
from natmix.engine.recorder import Recorder
from natmix.engine.single_run import SingleRun
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.checkpoint import load_state
from natmix.experiments.runs.checkpointing import CheckpointRecorder
from natmix.experiments.runs.config import RunConfig
from natmix.experiments.runs.directory import SeedFiles
from natmix.experiments.runs.elbo_evaluation import EvaluationRecorder
from natmix.experiments.runs.final import FinalRecorder
from natmix.experiments.runs.history import TraceRecorder, WeightHistory, WeightRecorder
from natmix.experiments.runs.loading import read_arrays, read_evaluations, read_weights
from natmix.experiments.runs.watcher import Watcher, WatcherRecorder
from natmix.mixture import Mixture
from natmix.random_keys import split_keys


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
        checkpoint_seconds: float,
        keep_checkpoint: bool,
    ) -> None:
        self.number, self.problem = number, problem
        self._config, self._files = config, files
        resumed = files.checkpoint.is_file()
        anew = files.folder.is_dir() and not resumed
        key_run, key_start, key_elbo = split_keys(jax.random.key(np.uint32(number)), 3)
        files.create()
        files.failed.unlink(missing_ok=True)
        self._trace, self._weights = TraceRecorder(files.trace), WeightRecorder(files.weights)
        self._evaluations = EvaluationRecorder(files.metrics, problem.reference, key_elbo)
        self._final = FinalRecorder(number, problem, files, key_elbo, self._evaluations, keep_checkpoint)
        self._rule = StoppingRule(config.algorithm, config.components)

        began = clock.read()
        mixture, prior = config.start.mixture(
            key_start, config.components, jnp.dtype(config.dtype), config.covariance
        )
        self.run = (
            self._resumed(mixture, prior, clock)
            if resumed
            else self._fresh(key_run, mixture, prior, clock, began)
        )
        files.final.unlink(missing_ok=True)
        self._checkpoints = CheckpointRecorder(
            files, checkpoint_seconds, keep_checkpoint, self._write_records, self._progress
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
        """From the checkpoint; what was written after it will be written again."""
        with clock.pause():
            state, stored = load_state(self._files.checkpoint, self._config.algorithm, mixture, prior)
            run = SingleRun(state, self._config.limits, clock)
            run.restore(stored)
            n = run.iterations
            trace = {k: v[:n] for k, v in read_arrays(self._files.trace).items()}
            self._trace = TraceRecorder(self._files.trace, trace)
            self._rule.replay(trace)
            weights = read_weights(self._files.weights)
            known = [(int(i), *weights.at(t)) for t, i in enumerate(weights.iterations) if i <= n]
            history = WeightHistory.from_rows(known)
            self._weights = WeightRecorder(self._files.weights, history, stored["weight_stride"])
            rows = read_evaluations(self._files.metrics)
            self._evaluations.rows = [row for row in rows if row["iterations"] <= n]
            self._evaluations.next_seconds = stored["next_evaluation"]
            self._final.seeds_together = stored["seeds_together"]
        run.set_clock(run.seconds)
        return run

    def _write_records(self) -> None:
        self._trace.write()
        self._weights.write()

    def _progress(self) -> dict[str, int | float]:
        return {
            **self.run.progress(),
            "next_evaluation": self._evaluations.next_seconds,
            "weight_stride": self._weights.stride,
            "seeds_together": self._final.seeds_together,
        }
