"""The end of a seed: its mixture, its metrics and its final numbers."""

import dataclasses
import logging
from typing import Any

import jax

from natmix.array_types import PRNGKey
from natmix.engine.recorder import Recorder
from natmix.engine.single_run import SingleRun
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.directory import SeedFiles
from natmix.experiments.runs.elbo_evaluation import EvaluationRecorder
from natmix.experiments.runs.environment import device
from natmix.files import write_json
from natmix.mixture import Mixture
from natmix.mixture.negligible import without_negligible

logger = logging.getLogger("natmix")

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


class FinalRecorder(Recorder):
    """Writes ``mixture.safetensors`` and ``final.json``, or ``failed.json``.

    Attributes:
        final: the final numbers, once there are some.
        seeds_together: the most seeds that shared the clock: each then advances more slowly than alone.
    """

    def __init__(
        self,
        seed: int,
        problem: Problem,
        files: SeedFiles,
        key: PRNGKey,
        evaluations: EvaluationRecorder,
        keep_checkpoint: bool,
    ) -> None:
        self.final: dict[str, Any] = {}
        self.seeds_together = 1
        self._seed, self._problem, self._files, self._key = seed, problem, files, key
        self._evaluations, self._keep_checkpoint = evaluations, keep_checkpoint

    def finished(self, run: SingleRun) -> None:
        with run.clock.pause():
            run.full_state = None  # it holds the samples of the whole batch
            mixture, left_out = without_negligible(jax.device_get(run.state.mixture))
            mixture.save(self._files.mixture, {"problem": self._problem.name, "seed": self._seed})
            last = self._evaluations.rows[-1]
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
            write_json(self._files.final, self.final)
            if not self._keep_checkpoint:
                self._files.drop_checkpoint()

    def failed(self, run: SingleRun) -> None:
        run.full_state = None
        write_json(
            self._files.failed,
            {
                "error": str(run.failure),
                "iterations": run.iterations,
                "evaluations": run.evaluations,
                "seconds": run.seconds,
            },
        )

    def _metrics(self, mixture: Mixture) -> dict[str, Any]:
        """The problem's metrics; a run is not lost because one cannot be computed."""
        try:
            from natmix.experiments.metrics import all_metrics

            found = all_metrics(self._problem, mixture, jax.random.fold_in(self._key, 2**31))
            values = {name: float(value) for name, value in found.items()}
            missing = dict(getattr(found, "missing", {}))
            return {**values, "missing_metrics": missing} if missing else values
        except Exception as error:
            logger.warning("Seed %d: the metrics could not be computed: %s", self._seed, error)
            return {"metrics_error": f"{type(error).__name__}: {error}"}
