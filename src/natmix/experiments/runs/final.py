"""The end of a seed: its mixture, its metrics and its final numbers."""

import dataclasses
import functools
import logging
from typing import Any, NamedTuple

import jax

from natmix.array_types import PRNGKey
from natmix.engine.recorder import Recorder
from natmix.engine.single_run import SingleRun
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.checkpoint import Owner
from natmix.experiments.runs.directory import SeedFiles
from natmix.experiments.runs.elbo_evaluation import EvaluationRecorder
from natmix.experiments.runs.environment import device
from natmix.experiments.runs.history import TraceRecorder, WeightRecorder, write_trace, write_weights
from natmix.experiments.runs.rows import ABOUT
from natmix.files.saving import Saving
from natmix.files.seal import FAILURE, FINAL
from natmix.files.sealed_json import write_sealed_json
from natmix.mixture import Mixture
from natmix.mixture.files import save_mixture
from natmix.mixture.negligible import without_negligible

logger = logging.getLogger("natmix")


class KeptRecords(NamedTuple):
    """What the other recorders of a seed keep."""

    trace: TraceRecorder
    weights: WeightRecorder
    evaluations: EvaluationRecorder


class FinalRecorder(Recorder):
    """Writes what is left of a finished seed, its final numbers last; or ``failed.json``.

    Attributes:
        final: the final numbers, once there are some.
        seeds_together: the most seeds that shared the clock: each then advances more slowly than alone.
    """

    def __init__(
        self,
        owner: Owner,
        problem: Problem,
        files: SeedFiles,
        key: PRNGKey,
        kept: KeptRecords,
        saving: Saving,
        keep_checkpoint: bool,
    ) -> None:
        self.final: dict[str, Any] = {}
        self.seeds_together = 1
        self._owner, self._problem, self._files, self._key = owner, problem, files, key
        self._kept, self._saving, self._keep_checkpoint = kept, saving, keep_checkpoint

    def finished(self, run: SingleRun) -> None:
        with run.clock.pause():
            run.full_state = None  # it holds the samples of the whole batch
            mixture, left_out = without_negligible(jax.device_get(run.state.mixture))
            last = self._kept.evaluations.rows[-1]
            self.final = {
                **self._metrics(mixture),
                "neg_elbo": last["neg_elbo"],
                "neg_elbo_se": last["neg_elbo_se"],
                "zero_share": last["zero_share"],
                "invalid_share": last["invalid_share"],
                "iterations": run.iterations,
                "evaluations": run.evaluations,
                "seconds": run.seconds,
                "compile_seconds": run.compile_seconds,
                "seeds_together": self.seeds_together,
                "components": mixture.num_components,
                "left_out": left_out,
                "stopped": run.stopped,
                "limits": dataclasses.asdict(run.limits),
                "device": device(),
            }
            self._saving.keep_until_written(self._name, functools.partial(self._write, mixture))

    def failed(self, run: SingleRun) -> None:
        run.full_state = None
        numbers = {
            "error": str(run.failure),
            "iterations": run.iterations,
            "evaluations": run.evaluations,
            "seconds": run.seconds,
        }

        def write() -> None:
            self._files.create()
            write_sealed_json(self._files.failed, FAILURE, numbers)

        self._saving.keep_until_written(self._name, write)

    @property
    def _name(self) -> str:
        return f"seed {self._owner['seed']}"

    def _write(self, mixture: Mixture) -> None:
        """All files of a finished seed; the final numbers name the checksums of the others."""
        files = self._files
        files.create()
        metadata = {"problem": self._problem.name, "seed": self._owner["seed"]}
        digests = {
            files.mixture.name: save_mixture(mixture, files.mixture, metadata),
            files.trace.name: write_trace(files.trace, self._kept.trace.stored()),
            files.weights.name: write_weights(files.weights, self._kept.weights.history()),
            files.metrics.name: self._kept.evaluations.write(),
        }
        write_sealed_json(files.final, FINAL, {**self.final, ABOUT: {**self._owner, "files": digests}})
        if not self._keep_checkpoint:
            files.drop_checkpoint()

    def _metrics(self, mixture: Mixture) -> dict[str, Any]:
        """The problem's metrics; a run is not lost because one cannot be computed."""
        try:
            from natmix.experiments.metrics import all_metrics

            found = all_metrics(self._problem, mixture, jax.random.fold_in(self._key, 2**31))
            values = {name: float(value) for name, value in found.items()}
            missing = dict(getattr(found, "missing", {}))
            return {**values, "missing_metrics": missing} if missing else values
        except Exception as error:
            logger.warning("Seed %d: the metrics could not be computed: %s", self._owner["seed"], error)
            return {"metrics_error": f"{type(error).__name__}: {error}"}
