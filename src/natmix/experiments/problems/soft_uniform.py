"""A uniform density with soft walls (Pignat et al., 2020)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_TAIL = -5.0
_LEVELS = 12


def soft_uniform(
    x: Float[Array, "*S"],
    low: Float[Array, "*#S"] | float,
    high: Float[Array, "*#S"] | float,
    scale: float,
) -> Float[Array, "*S"]:
    """The density log Phi((x - low) / scale) + log Phi((high - x) / scale), not normalised."""
    return log_normal_cdf((x - low) / scale) + log_normal_cdf((high - x) / scale)


@jax.custom_jvp
def log_normal_cdf(z: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """The function log Phi(z), with a derivative that is accurate far in the tail."""
    return jax.scipy.special.log_ndtr(z)


@log_normal_cdf.defjvp
def _log_normal_cdf_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (dz,) = primals, tangents
    value = log_normal_cdf(z)
    return value, _hazard(z, value) * dz


def _hazard(z: Array, log_cdf: Array) -> Array:
    """phi(z) / Phi(z).

    In the tail log phi - log Phi is a small difference of large numbers, and Laplace's continued fraction
    u + 1 / (u + 2 / (u + 3 / ...)) with u = -z takes its place.
    """
    far = z < _TAIL
    u = jnp.where(far, -z, -_TAIL)
    tail = u
    for k in range(_LEVELS, 0, -1):
        tail = u + k / tail
    log_pdf = jax.scipy.stats.norm.logpdf(jnp.where(far, _TAIL, z))
    return jnp.where(far, tail, jnp.exp(log_pdf - jnp.where(far, 0.0, log_cdf)))
