"""The ELBO of a fitted mixture, from fresh samples."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.estimate import Estimate
from natmix.kernels.compilation import quick_jit
from natmix.mixture import Mixture
from natmix.random_keys import split_keys
from natmix.targets import AbstractTarget


@dataclasses.dataclass(frozen=True)
class Elbo:
    """The evidence lower bound (Eq. 1), from fresh samples of the mixture.

    Attributes:
        value: -inf if the target's density is zero at a sample.
        standard_error: of ``value``, or of ``where_positive`` if ``value`` is -inf; at least the rounding
            error of the log densities.
        where_positive: the mean of log p~ - log q over the samples with a positive density.
        zero_share: the share of samples with log density -inf.
        invalid_share: the share of samples with log density NaN or +inf, which are left out.
        samples: the number of samples evaluated. All other fields are NaN if the evaluation was interrupted.
    """

    value: float
    standard_error: float
    where_positive: float
    zero_share: float
    invalid_share: float
    samples: int

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        if np.isnan(self.zero_share):
            return "not estimated"
        text = str(Estimate(self.value, self.standard_error))
        if self.zero_share > 0:
            text = (
                f"-inf: {self.zero_share:.2%} of the mixture lies where the density is zero "
                f"({Estimate(self.where_positive, self.standard_error)} on the rest)"
            )
        if self.invalid_share > 0:
            text += f", {self.invalid_share:.2%} of the samples gave NaN or +inf and are left out"
        return text


def no_elbo(samples: int) -> Elbo:
    """An ELBO whose evaluation was interrupted after so many samples."""
    nan = float("nan")
    return Elbo(nan, nan, nan, nan, nan, samples)


NO_ELBO = no_elbo(0)


def evaluated_draws(mixture: Mixture, target: AbstractTarget, key: PRNGKey, samples: int) -> EvaluatedDraws:
    """Fresh samples of the mixture with the log densities of mixture and target."""
    key_x, key_target = split_keys(key, 2)
    x = mixture.sample(samples, key=key_x)
    log_p = np.asarray(target_log_density(target, key_target, x), dtype=float)
    log_q = np.asarray(mixture.log_prob(x), dtype=float)
    return EvaluatedDraws(np.asarray(x, dtype=float), log_p, log_q, np.dtype(mixture.dtype))


def elbo_of(draws: EvaluatedDraws) -> Elbo:
    """E[log p~ - log q] (Eq. 1); samples of zero or invalid density are reported, not hidden."""
    if len(draws) == 0:
        return NO_ELBO
    zero = draws.log_target == -np.inf
    invalid = ~(draws.log_target < np.inf)
    good = draws.log_ratio[~zero & ~invalid]
    positive = float(good.mean()) if good.size else float("nan")
    error = float(good.std(ddof=1) / np.sqrt(good.size)) if good.size > 1 else float("inf")
    error = max(error, draws.resolution)
    value = -np.inf if zero.any() else positive
    return Elbo(value, error, positive, float(zero.mean()), float(invalid.mean()), len(draws))


def estimate_elbo(mixture: Mixture, target: AbstractTarget, key: PRNGKey, samples: int) -> Elbo:
    """The ELBO from ``samples`` fresh samples."""
    return elbo_of(evaluated_draws(mixture, target, key, samples)) if samples else NO_ELBO


def target_log_density(target: AbstractTarget, key: PRNGKey, x: Float[Array, "N D"]) -> Float[Array, " N"]:
    """Log p~ at the points ``x``."""
    if target.inside_jax:
        return _compiled(target, key, x)
    return target.evaluate(key, x, x.shape[0], needs_gradient=False).log_density


@quick_jit()
def _compiled(target: AbstractTarget, key: PRNGKey, x: Float[Array, "N D"]) -> Float[Array, " N"]:
    return target.evaluate(key, x, jnp.asarray(x.shape[0]), needs_gradient=False).log_density
