"""Random keys and what is drawn with them."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix._types import PRNGKey


def as_key(key: PRNGKey | int) -> PRNGKey:
    """A typed key from a typed key, an old-style key or an integer seed."""
    if isinstance(key, (int, np.integer)):
        return jax.random.key(int(key))
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(key)


def draw_rows(key: PRNGKey, log_weights: Float[Array, " K"], n: int) -> Int[Array, " n"]:
    """``n`` component indices by inverting the cumulative weights: padding changes nothing."""
    cumulative = jnp.cumsum(jnp.exp(log_weights))
    u = jax.random.uniform(key, (n,), cumulative.dtype) * cumulative[-1]
    rows = jnp.searchsorted(cumulative, u, side="right")
    last = jnp.max(jnp.where(log_weights > -jnp.inf, jnp.arange(log_weights.shape[0]), 0))
    return jnp.minimum(rows, last).astype(jnp.int32)
