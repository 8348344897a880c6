"""One seed of a run: its state, its records and its files."""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natmix.engine.capacity import initial_capacity
from natmix.engine.chunk_runner import CHUNK, ChunkResult, check_first
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.checkpoint import load_state, save_state
from natmix.experiments.runs.clock import Clock
from natmix.experiments.runs.config import RunConfig
from natmix.experiments.runs.directory import SeedFiles
from natmix.experiments.runs.elbo_evaluation import FINAL_SAMPLES, SAMPLES, look
from natmix.experiments.runs.environment import device
from natmix.experiments.runs.history import Trace, WeightHistory, WeightRecorder
from natmix.experiments.runs.loading import read_arrays, read_looks, read_weights
from natmix.files import write_arrays, write_json, write_lines
from natmix.mixture import Mixture
from natmix.mixture.negligible import without_negligible
from natmix.modules.state import State
from natmix.random_keys import split_keys

logger = logging.getLogger("natmix")

CHUNK_SECONDS = 0.25
LOOK_GROWTH = 1.1
"""Looks are taken each time the running time has grown by this factor,"""
LOOK_SECONDS = 0.5
"""and at least so many seconds apart."""
CHECKPOINT_SECONDS = 60.0
FIRST_CHECKPOINT_SECONDS = 10.0
"""The first one comes early, so that little is lost of a run that is killed soon."""
_CHECKPOINT_SHARE = 20  # a checkpoint that took s seconds is followed by 20 s without one


@dataclasses.dataclass
class Progress:
    """How far a seed has come: plain numbers, stored with its checkpoint."""

    iterations: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    components: int = 0
    next_look: float = 0.0
    weight_stride: int = 1
    rate: float = 0.0
    """Iterations per second, lately."""
    seeds_together: int = 1
    """The most seeds that shared the clock: each then advances more slowly than alone."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What there is to show of a seed."""

    seed: int
    iterations: int
    evaluations: int
    components: int
    seconds: float
    neg_elbo: float | None
    """None before the first look."""
    neg_elbo_se: float | None


class SeedJob:
    """Runs one seed when told to: ``begin``, then ``took`` after every chunk, until ``stopped``.

    ``anew`` is whether it had been begun before, but there is no checkpoint to go on from.
    """

    def __init__(
        self,
        seed: int,
        problem: Problem,
        config: RunConfig,
        files: SeedFiles,
        clock: Clock,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self.seed, self.problem, self.config, self.files = seed, problem, config, files
        self.progress = Progress()
        self.stopped: str | None = None
        self.looks: list[dict[str, Any]] = []
        self.clock, self._offset = clock, 0.0
        self._trace, self._weights = Trace(), WeightRecorder()
        self._checkpoint_seconds, self._checkpoint_cost = checkpoint_seconds, 0.0
        self._last_checkpoint = time.perf_counter()
        self._key_run, self._key_start, self._key_look = split_keys(jax.random.key(np.uint32(seed)), 3)
        self.state: State = self._begin()
        self._whole: Callable[[], State] | None = None

    # The beginning ------------------------------------------------------------------------------

    def _begin(self) -> State:
        """The first state, or the one of the checkpoint."""
        config = self.config
        self._has_checkpoint = self.files.checkpoint.is_file()
        self.anew = self.files.folder.is_dir() and not self._has_checkpoint
        self.files.create()
        self.files.failed.unlink(missing_ok=True)
        self._offset = -self.clock.read()
        mixture, prior = config.start.mixture(
            self._key_start, config.components, jnp.dtype(config.dtype), config.covariance == "diagonal"
        )
        if self.files.checkpoint.is_file():
            return self._resumed(mixture, prior)
        self.files.final.unlink(missing_ok=True)
        self.progress.components = config.components
        capacity = initial_capacity(config.algorithm, config.components, mixture.dim)
        return config.algorithm.init(self._key_run, mixture, prior, capacity)

    def _resumed(self, mixture: Mixture, prior: Mixture) -> State:
        with self.clock.pause():
            state, stored = load_state(self.files.checkpoint, self.config.algorithm, mixture, prior)
            self.progress = Progress(**stored)
            n = self.progress.iterations
            # What was written after the checkpoint will be written again.
            self.looks = [row for row in read_looks(self.files.metrics) if row["iterations"] <= n]
            self._trace = Trace({k: v[:n] for k, v in read_arrays(self.files.trace).items()})
            weights = read_weights(self.files.weights)
            rows = [(int(i), *weights.at(t)) for t, i in enumerate(weights.iterations) if i <= n]
            self._weights = WeightRecorder(WeightHistory.from_rows(rows), self.progress.weight_stride)
            self.files.final.unlink(missing_ok=True)
        self._offset = self.progress.seconds - self.clock.read()
        return state

    # The middle ---------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """On this seed's clock."""
        return self._offset + self.clock.read()

    def catch_up(self, seconds: float) -> None:
        """From now on its clock shows what another's shows that shows so much."""
        self._offset += max(0.0, seconds - self.seconds)

    def chunk_length(self) -> int:
        """Iterations until the host wants to see the state again."""
        done, limits = self.progress.iterations, self.config.limits
        seconds = CHUNK_SECONDS
        if limits.max_seconds is not None:
            seconds = min(seconds, limits.max_seconds - self.seconds)
        if limits.max_run_seconds is not None:
            seconds = min(seconds, limits.max_run_seconds - (self.seconds - self.progress.compile_seconds))
        # Chunks end at multiples of CHUNK whatever the clock says.
        n = min(CHUNK - done % CHUNK, max(1, int(self.progress.rate * seconds)))
        return n if limits.max_iterations is None else max(1, min(n, limits.max_iterations - done))

    def budget(self) -> int | None:
        """Evaluations left."""
        limit = self.config.limits.max_evaluations
        return None if limit is None else limit - self.progress.evaluations

    def took(self, chunk: ChunkResult, before: float, now: float, compiling: float) -> None:
        """A chunk from ``before`` to ``now`` on this seed's clock that spent some seconds compiling."""
        progress = self.progress
        self.state, self._whole = chunk.state, chunk.whole
        n = len(chunk.infos["elbo"])
        progress.seconds = now
        progress.compile_seconds += compiling
        if n:
            if progress.iterations == 0:
                check_first(chunk.infos, "Start where the density is positive")
            progress.iterations += n
            progress.evaluations += int(chunk.infos["evaluations"].astype(np.int64).sum())
            progress.components = int(chunk.infos["components"][-1])
            progress.rate = n / max(now - before - compiling, 1e-9)
            self._trace.append(chunk.infos, before, now)
            if self._weights.due(progress.iterations):
                self._record_weights()
        self.stopped = self._limit(chunk.exhausted)
        if now >= progress.next_look and self.stopped is None:
            self._look()
            self.stopped = self._limit(False)
        if self.stopped is None and self._checkpoint_due():
            self.checkpoint()

    def _limit(self, exhausted: bool) -> str | None:
        limits, progress = self.config.limits, self.progress
        if exhausted:
            return "max_evaluations"
        if limits.max_iterations is not None and progress.iterations >= limits.max_iterations:
            return "max_iterations"
        if limits.max_seconds is not None and progress.seconds >= limits.max_seconds:
            return "max_seconds"
        running = progress.seconds - progress.compile_seconds
        if limits.max_run_seconds is not None and running >= limits.max_run_seconds:
            return "max_run_seconds"
        if limits.until is not None and self.looks and self.looks[-1]["neg_elbo"] <= limits.until:
            return "until"
        return None

    def _record_weights(self) -> None:
        log_weights, ids = np.asarray(self.state.mixture.log_weights), np.asarray(self.state.ids)
        self._weights.record(self.progress.iterations, ids, log_weights)

    @contextlib.contextmanager
    def _off_the_clock(self) -> Iterator[None]:
        with self.clock.pause():
            yield

    def _look(self, samples: int = SAMPLES) -> None:
        with self._off_the_clock():
            progress = self.progress
            if self.looks and self.looks[-1]["iterations"] == progress.iterations:
                if samples == SAMPLES:
                    return
                self.looks.pop()
            key = jax.random.fold_in(self._key_look, progress.iterations)
            seen = look(self.state.mixture, self.problem.reference, key, samples)
            self.looks.append(
                {
                    "seconds": progress.seconds,
                    "compile_seconds": progress.compile_seconds,
                    "iterations": progress.iterations,
                    "evaluations": progress.evaluations,
                    "components": progress.components,
                    **dataclasses.asdict(seen),
                }
            )
            progress.next_look = max(LOOK_GROWTH * progress.seconds, progress.seconds + LOOK_SECONDS)
            write_lines(self.files.metrics, self.looks)

    def snapshot(self) -> Snapshot:
        """What there is to show."""
        p, last = self.progress, self.looks[-1] if self.looks else {}
        return Snapshot(
            self.seed,
            p.iterations,
            p.evaluations,
            p.components,
            p.seconds,
            last.get("neg_elbo"),
            last.get("neg_elbo_se"),
        )

    # Checkpoints --------------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        since, usual = time.perf_counter() - self._last_checkpoint, self._checkpoint_seconds
        if not self._has_checkpoint:
            return since >= min(FIRST_CHECKPOINT_SECONDS, usual)
        return since >= max(usual, _CHECKPOINT_SHARE * self._checkpoint_cost)

    def checkpoint(self) -> None:
        """Write down everything needed to go on."""
        with self._off_the_clock():
            before = time.perf_counter()
            self.progress.weight_stride = self._weights.stride
            self._write_records()
            state = self.state if self._whole is None else self._whole()
            save_state(self.files.checkpoint, state, dataclasses.asdict(self.progress))
            self._has_checkpoint = True
            self._last_checkpoint = time.perf_counter()
            self._checkpoint_cost = self._last_checkpoint - before

    def _write_records(self) -> None:
        write_arrays(self.files.trace, self._trace.arrays())
        write_arrays(self.files.weights, self._weights.history().arrays())

    # The end ------------------------------------------------------------------------------------

    def finish(self, keep_checkpoint: bool) -> dict[str, Any]:
        """A last look, the mixture, its metrics; returns the final numbers."""
        with self._off_the_clock():
            self._look(FINAL_SAMPLES)
            if self._weights.rows[-1][0] != self.progress.iterations:
                self._record_weights()
            if keep_checkpoint:
                self.checkpoint()
            else:
                self._write_records()
            self._whole = None  # it holds the samples of the whole group
            mixture, left_out = without_negligible(jax.device_get(self.state.mixture))
            mixture.save(self.files.mixture, {"problem": self.problem.name, "seed": self.seed})
            last = self.looks[-1]
            final = {
                **self._metrics(mixture),
                "neg_elbo": last["neg_elbo"],
                "neg_elbo_se": last["neg_elbo_se"],
                "zero_share": last["zero_share"],
                "invalid_share": last["invalid_share"],
                "iterations": self.progress.iterations,
                "evaluations": self.progress.evaluations,
                "seconds": self.progress.seconds,
                "compile_seconds": self.progress.compile_seconds,
                "seeds_together": self.progress.seeds_together,
                "components": mixture.num_components,
                "left_out": left_out,
                "stopped": self.stopped,
                "limits": dataclasses.asdict(self.config.limits),
                "device": device(),
            }
            write_json(self.files.final, final)
            if not keep_checkpoint:
                self.files.drop_checkpoint()
            return final

    def _metrics(self, mixture: Mixture) -> dict[str, Any]:
        """The problem's metrics; a run is not lost because one cannot be computed."""
        try:
            from natmix.experiments.metrics import all_metrics

            found = all_metrics(self.problem, mixture, jax.random.fold_in(self._key_look, 2**31))
            values = {name: float(value) for name, value in found.items()}
            missing = dict(getattr(found, "missing", {}))
            return {**values, "missing_metrics": missing} if missing else values
        except Exception as error:
            logger.warning("Seed %d: the metrics could not be computed: %s", self.seed, error)
            return {"metrics_error": f"{type(error).__name__}: {error}"}

    def fail(self, message: str) -> None:
        """Write down what went wrong."""
        self.stopped, self._whole = "failed", None
        write_json(
            self.files.failed,
            {
                "error": message,
                "iterations": self.progress.iterations,
                "evaluations": self.progress.evaluations,
                "seconds": self.progress.seconds,
            },
        )


FINAL_NUMBERS = (
    "neg_elbo",
    "neg_elbo_se",
    "zero_share",
    "invalid_share",
    "iterations",
    "evaluations",
    "seconds",
    "compile_seconds",
    "seeds_together",
    "components",
    "left_out",
    "stopped",
    "limits",
    "device",
    "metrics_error",
    "missing_metrics",
)
"""Names in ``final.json`` that are not metrics of the problem."""
