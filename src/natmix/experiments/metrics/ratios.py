"""The log densities log p~(x) and log q(x) at the same points, from which most metrics follow."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from natmix.array_types import KeyLike, PRNGKey
from natmix.diagnostics.elbo import target_log_density
from natmix.mixture import Mixture
from natmix.random_keys import as_key
from natmix.targets import AbstractTarget


class Ratios(NamedTuple):
    """Log importance weights log w = log p~(x) - log q(x) of the usable points.

    Attributes:
        log_w: in float64; -inf where the target's density is zero, +inf where only the mixture's is.
        invalid_share: share of points left out because log p~ was NaN or +inf there.
    """

    log_w: Float[np.ndarray, " N"]
    invalid_share: float


def at_mixture_samples(mixture: Mixture, target: AbstractTarget, key: KeyLike, samples: int) -> Ratios:
    """Ratios at samples of q; the same key gives the samples of `natmix.experiments.metrics.neg_elbo`."""
    if samples < 2:
        raise ValueError(f"An estimate with a standard error needs at least two samples, got {samples}.")
    key_x, key_target = jax.random.split(as_key(key))
    return _at(mixture, target, key_target, mixture.sample(samples, key=key_x))


def at_target_samples(mixture: Mixture, target: AbstractTarget, samples: ArrayLike) -> Ratios:
    """Ratios at given samples of p."""
    x = np.asarray(samples)
    if x.ndim != 2 or x.shape[0] < 2 or x.shape[1] != mixture.dim:
        raise ValueError(
            f"Samples of the target must have shape [N, {mixture.dim}] with N >= 2, got {list(x.shape)}."
        )
    return _at(mixture, target, jax.random.key(0), x)


def _at(mixture: Mixture, target: AbstractTarget, key: PRNGKey, x: ArrayLike) -> Ratios:
    points = jax.numpy.asarray(x, mixture.dtype)
    log_p = np.asarray(target_log_density(target, key, points), dtype=float)
    log_q = np.asarray(mixture.log_prob(points), dtype=float)
    valid = log_p < np.inf
    return Ratios((log_p - log_q)[valid], float(np.mean(~valid)))
