"""The number of detected modes."""

import jax.numpy as jnp
from numpy.typing import ArrayLike

from natmix.mixture import Mixture

RADIUS = 6.0
"""Per dimension: a mode counts as found within the norm of (6, ..., 6)."""


def detected_modes(mixture: Mixture, modes: ArrayLike) -> int:
    """The number of rows m of ``modes`` with min_o |m - m_o| < 6 sqrt(D), o the components in use."""
    centres = jnp.asarray(modes, mixture.dtype)
    if centres.ndim != 2 or centres.shape[1] != mixture.dim:
        raise ValueError(f"Modes must have shape [M, {mixture.dim}], got {list(centres.shape)}.")
    square = jnp.sum((centres[:, None] - mixture.means) ** 2, axis=-1)
    nearest = jnp.min(jnp.where(mixture.log_weights > -jnp.inf, square, jnp.inf), axis=1)
    return int(jnp.sum(nearest < RADIUS**2 * mixture.dim))
