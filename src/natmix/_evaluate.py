"""The ELBO of a finished mixture, from fresh samples."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix._compile import quick_jit
from natmix._draws import Draws
from natmix._keys import several
from natmix._result import Elbo
from natmix._types import PRNGKey
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget


def no_elbo(samples: int) -> Elbo:
    """One that was broken off after so many evaluations."""
    nan = float("nan")
    return Elbo(nan, nan, nan, nan, nan, samples)


NO_ELBO = no_elbo(0)


def evaluated_draws(mixture: Mixture, target: AbstractTarget, key: PRNGKey, samples: int) -> Draws:
    """Fresh samples of the mixture, with both log densities."""
    key_x, key_target = several(key, 2)
    x = mixture.sample(key_x, samples)
    log_p = np.asarray(_log_density(target, key_target, x), dtype=float)
    return Draws(np.asarray(x, dtype=float), log_p, np.asarray(mixture.log_prob(x), dtype=float))


def elbo_of(draws: Draws) -> Elbo:
    """E[log p~ - log q] (Eq. 1), without hiding zeros or invalid values."""
    if len(draws) == 0:
        return NO_ELBO
    zero = draws.log_target == -np.inf
    invalid = ~(draws.log_target < np.inf)
    good = draws.log_ratio[~zero & ~invalid]
    positive = float(good.mean()) if good.size else float("nan")
    error = float(good.std(ddof=1) / np.sqrt(good.size)) if good.size > 1 else float("inf")
    value = -np.inf if zero.any() else positive
    return Elbo(value, error, positive, float(zero.mean()), float(invalid.mean()), len(draws))


def estimate_elbo(mixture: Mixture, target: AbstractTarget, key: PRNGKey, samples: int) -> Elbo:
    """The ELBO from ``samples`` fresh samples."""
    return elbo_of(evaluated_draws(mixture, target, key, samples)) if samples else NO_ELBO


def _log_density(target: AbstractTarget, key: PRNGKey, x: Float[Array, "N D"]) -> Float[Array, " N"]:
    if target.inside_jax:
        return _compiled(target, key, x)
    return target.evaluate(key, x, x.shape[0], needs_gradient=False).log_density


@quick_jit()
def _compiled(target: AbstractTarget, key: PRNGKey, x: Float[Array, "N D"]) -> Float[Array, " N"]:
    return target.evaluate(key, x, jnp.asarray(x.shape[0]), needs_gradient=False).log_density
