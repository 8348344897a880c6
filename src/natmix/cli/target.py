"""The target of the demo: two interlocking half-rings, a banana and three Gaussians in the plane.

Its density is normalised, so the ELBO of a mixture is minus its KL divergence from the target.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import multivariate_normal, norm
from jaxtyping import Array, Float

from natmix.array_types import Scalar

BOUNDS = (-7.4, 7.4, -6.6, 6.6)
"""What to show of it: (left, right, bottom, top)."""

LOG_EVIDENCE = 0.0
"""The log of its normaliser."""

_WEIGHTS = (0.28, 0.28, 0.18, 0.08, 0.08, 0.10)
_GAUSSIANS = (
    ((-4.7, 3.6), ((0.14, 0.0), (0.0, 0.14))),
    ((4.7, 3.7), ((0.75, 0.48), (0.48, 0.45))),
    ((4.6, -3.4), ((0.2, -0.25), (-0.25, 0.8))),
)


def log_density(x: Float[Array, "2"]) -> Scalar:
    """The log density at one point of the plane."""
    parts = [
        _half_ring(x, centre=(-1.0, -0.45), radius=2.1, width=0.22, middle=np.pi / 2),
        _half_ring(x, centre=(1.0, 0.45), radius=2.1, width=0.22, middle=-np.pi / 2),
        _banana(x, centre=(-4.2, -3.6), length=0.9, width=0.3, bend=-0.35),
        *(multivariate_normal.logpdf(x, jnp.asarray(m), jnp.asarray(S)) for m, S in _GAUSSIANS),
    ]
    return logsumexp(jnp.stack(parts) + jnp.log(jnp.asarray(_WEIGHTS)))


def _half_ring(
    x: Float[Array, "2"], *, centre: tuple[float, float], radius: float, width: float, middle: float
) -> Scalar:
    """The radius r is normal; the angle a from ``middle`` has density exp(-(a/s)^4) / (2 s Gamma(5/4))."""
    spread = 1.35
    offset = x - jnp.asarray(centre)
    r = jnp.sqrt(offset @ offset + 1e-9)
    towards = jnp.array([np.cos(middle), np.sin(middle)])
    aside = jnp.array([-np.sin(middle), np.cos(middle)])
    angle = jnp.arctan2(offset @ aside, offset @ towards)
    log_angle = -((angle / spread) ** 4) - np.log(2 * spread * math.gamma(1.25))
    return norm.logpdf(r, radius, width) + log_angle - jnp.log(r)


def _banana(
    x: Float[Array, "2"], *, centre: tuple[float, float], length: float, width: float, bend: float
) -> Scalar:
    """A normal distribution whose second coordinate follows the square of the first."""
    along, across = x - jnp.asarray(centre)
    return norm.logpdf(along, 0, length) + norm.logpdf(across - bend * (along**2 - length**2), 0, width)
