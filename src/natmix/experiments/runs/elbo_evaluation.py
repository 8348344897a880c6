"""Evaluations of the ELBO during a run: on the reference target, from fresh samples of the mixture."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey
from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.experiments.runs.rows import ElboRow
from natmix.files.saving import Saving
from natmix.files.seal import EVALUATIONS
from natmix.files.sealed_json import write_rows
from natmix.kernels.compilation import quick_jit
from natmix.mixture import Mixture
from natmix.mixture.negligible import NEGLIGIBLE_WEIGHT
from natmix.modules.state import take_components
from natmix.targets import AbstractTarget

SAMPLES = 2000
FINAL_SAMPLES = 20_000
"""For the last evaluation of a seed, whose number goes into tables (the paper: 2000)."""

GROWTH = 1.1
"""The ELBO is evaluated each time the running time has grown by this factor,"""
SECONDS = 0.5
"""and at least so many seconds apart."""


@dataclasses.dataclass(frozen=True)
class ElboEvaluation:
    """-E[log p~ - log q] (Eq. 1) and what else the samples show.

    Attributes:
        neg_elbo: infinite if a sample hit a density of zero.
        neg_elbo_se: its standard error, on the samples with a positive density.
        zero_share: share of samples with a density of zero.
        invalid_share: share of samples where the target gave NaN or +inf; they are left out.
    """

    neg_elbo: float
    neg_elbo_se: float
    zero_share: float
    invalid_share: float


def evaluate_elbo(
    mixture: Mixture, reference: AbstractTarget, key: PRNGKey, samples: int = SAMPLES
) -> ElboEvaluation:
    """Estimate the ELBO of a mixture of any capacity, without its negligible components."""
    log_p, log_q = (np.asarray(a, dtype=float) for a in _log_densities(mixture, reference, key, samples))
    zero, invalid = log_p == -np.inf, ~(log_p < np.inf)
    good = (log_q - log_p)[~zero & ~invalid]
    value = float(good.mean()) if good.size else float("nan")
    error = float(good.std(ddof=1) / np.sqrt(good.size)) if good.size > 1 else float("inf")
    return ElboEvaluation(
        float("inf") if zero.any() else value, error, float(zero.mean()), float(invalid.mean())
    )


@quick_jit()
def _log_densities(
    mixture: Mixture, reference: AbstractTarget, key: PRNGKey, samples: int
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    # The empty slots stay, so that one program serves until the capacity changes.
    keep = mixture.components.finite() & (mixture.log_weights >= np.log(NEGLIGIBLE_WEIGHT))
    q = take_components(mixture, jnp.where(keep, jnp.arange(mixture.num_components), -1))
    q = Mixture(jax.nn.log_softmax(q.log_weights), q.components)
    key_x, key_target = jax.random.split(key)
    x = q.sample(samples, key=key_x)
    log_p = reference.evaluate(key_target, x, jnp.asarray(samples), needs_gradient=False).log_density
    return log_p, q.log_prob(x)


class EvaluationTimes(NamedTuple):
    """When the ELBO is evaluated, whatever the clock says.

    Attributes:
        every: after multiples of so many iterations.
        parts: of these only the first in each of so many parts of the budget; None: all.
    """

    every: int
    parts: int | None = None


Judge = Callable[[ElboRow], str | None]
"""Is told every evaluation in order; may return why the run ends."""


class EvaluationRecorder(Recorder):
    """Evaluates the ELBO now and then, and writes the file of metrics.

    When is a matter of the clock, unless there are `EvaluationTimes`; what is found depends on the seed and
    the iteration alone. Ends a run whose -ELBO is as low as ``limits.until``, or at the word of its judge.

    Attributes:
        rows: the evaluations so far.
        next_seconds: when the next one is due, on the run's clock.
    """

    def __init__(
        self,
        path: Path,
        reference: AbstractTarget,
        key: PRNGKey,
        saving: Saving,
        times: EvaluationTimes | None = None,
        judge: Judge = lambda row: None,
    ) -> None:
        """Prepare it; chunks of the run must end at the multiples of ``times.every``."""
        self.rows: list[ElboRow] = []
        self.next_seconds = 0.0
        self._path, self._reference, self._key, self._saving = path, reference, key, saving
        self._times, self._judge = times, judge

    def chunk(self, run: SingleRun, chunk: Chunk) -> str | None:
        if run.stopped is not None:
            return None  # the last one comes at once
        if self._is_due(run) and not self._is_known(run):
            self._evaluate(run, SAMPLES)
            reason = self._judge(self.rows[-1])
            if reason is not None:
                return reason
        until = run.limits.until
        return "until" if until is not None and self.rows and self.rows[-1]["neg_elbo"] <= until else None

    def finished(self, run: SingleRun) -> None:
        if self._is_known(run):
            self.rows.pop()
        self._evaluate(run, FINAL_SAMPLES)

    def _is_due(self, run: SingleRun) -> bool:
        if self._times is None:
            return run.seconds >= self.next_seconds
        every, parts = self._times
        if run.iterations % every:
            return False
        return parts is None or self._part(run, parts) > self._last_part(run, parts)

    def _part(self, run: SingleRun, parts: int) -> int:
        """The part of the budget that the run has come to."""
        return math.floor(parts * run.limits.used_share(run.iterations, run.evaluations, run.seconds))

    def _last_part(self, run: SingleRun, parts: int) -> int:
        """That of the last evaluation."""
        if not self.rows:
            return 0
        last = self.rows[-1]
        share = run.limits.used_share(last["iterations"], last["evaluations"], last["seconds"])
        return math.floor(parts * share)

    def restore(self, rows: list[ElboRow], next_seconds: float) -> None:
        """Go on after these evaluations."""
        self.rows, self.next_seconds = rows, next_seconds
        for row in rows:
            self._judge(row)

    def _is_known(self, run: SingleRun) -> bool:
        return bool(self.rows) and self.rows[-1]["iterations"] == run.iterations

    def _evaluate(self, run: SingleRun, samples: int) -> None:
        with run.clock.pause():
            key = jax.random.fold_in(self._key, run.iterations)
            found = evaluate_elbo(run.state.mixture, self._reference, key, samples)
            self.rows.append(
                ElboRow(
                    seconds=run.seconds,
                    compile_seconds=run.compile_seconds,
                    iterations=run.iterations,
                    evaluations=run.evaluations,
                    components=run.components,
                    neg_elbo=found.neg_elbo,
                    neg_elbo_se=found.neg_elbo_se,
                    zero_share=found.zero_share,
                    invalid_share=found.invalid_share,
                )
            )
            self.next_seconds = max(GROWTH * run.seconds, run.seconds + SECONDS)
            if run.stopped is None:  # the last one comes with the final numbers
                self._saving.attempt(self.write)

    def write(self) -> str:
        """Write the file; returns its checksum."""
        self._path.parent.mkdir(exist_ok=True)
        return write_rows(self._path, EVALUATIONS, self.rows)
