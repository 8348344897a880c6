"""The trust region's search by eigenvalues: after one decomposition the KL is a sum of D scalar terms."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natmix.array_types import Scalar
from natmix.kernels.interval_search import first_inside
from natmix.kernels.trust_region.kl_by_moments import NEAR, near_zero

_HALVINGS = 20
_LOG_RANGE = (-60.0, 60.0)


class EigenStep(NamedTuple):
    """The solution of the search, per component."""

    eta: Float[Array, " K"]
    gap: Float[Array, "K D"]
    """eta + l, stored because it may be far smaller than both."""
    kl: Float[Array, " K"]
    ok: Bool[Array, " K"]


def eigen_search(
    eigenvalues: Float[Array, "K D"],
    b: Float[Array, "K D"],
    bound: Float[Array, " K"],
    temperature: Scalar,
) -> EigenStep:
    """The smallest eta >= T with a positive definite precision and KL <= bound."""
    smallest = jnp.min(eigenvalues, axis=1)
    base = jnp.maximum(temperature, -smallest)
    above = eigenvalues + base[:, None]  # >= 0; exactly 0 for the critical eigenvalue

    def kl_at(excess: Float[Array, "*S K"]) -> Float[Array, "*S K"]:
        return _kl(eigenvalues, b, base + excess, above + excess[..., None])

    full = kl_at(jnp.zeros_like(base))
    full_step = (temperature > -smallest) & (full <= bound)
    # Excess over the base, on a logarithmic scale relative to the size of the problem.
    size = jnp.maximum(base, jnp.max(jnp.abs(b), axis=1))
    size = jnp.maximum(size, jnp.max(jnp.abs(eigenvalues), axis=1))
    low = jnp.full_like(base, _LOG_RANGE[0])
    high = jnp.full_like(base, _LOG_RANGE[1])
    found = first_inside(lambda t: kl_at(size * jnp.exp(t)) <= bound, low, high, _HALVINGS, eigenvalues.size)
    excess = jnp.where(full_step, 0, size * jnp.exp(found))
    eta, gap = base + excess, above + excess[:, None]
    kl = _kl(eigenvalues, b, eta, gap)
    # Recomputed, the KL may exceed the bound by rounding.
    ok = (kl <= 1.001 * bound) & (bound > 0) & jnp.isfinite(eta) & jnp.all(gap > 0, axis=1)
    return EigenStep(eta, gap, kl, ok)


def _kl(
    eigenvalues: Float[Array, "K D"],
    b: Float[Array, "K D"],
    eta: Float[Array, "*S K"],
    gap: Float[Array, "*S K D"],
) -> Float[Array, "*S K"]:
    # x = l/eta and 1 + x = gap/eta; log(1 + x) - x/(1 + x) loses its precision for small x.
    x = eigenvalues / eta[..., None]
    ratio = gap / eta[..., None]
    exact = jnp.where(jnp.abs(x) < 0.5, jnp.log1p(x), jnp.log(ratio)) - x / ratio
    covariance = jnp.where(jnp.abs(x) < NEAR, x * x * near_zero(x), exact)
    return 0.5 * jnp.sum(covariance + (b / gap) ** 2, axis=-1)
