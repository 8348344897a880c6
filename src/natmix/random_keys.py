"""Random keys and random component indices."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.array_types import KeyLike, PRNGKey


def as_key(key: KeyLike) -> PRNGKey:
    """A typed key from a typed key, an old-style key or an integer seed."""
    if not hasattr(key, "dtype") and (isinstance(key, bool) or not isinstance(key, int)):
        raise ValueError(f"A seed is a whole number (or a JAX key), got {key!r}.")
    if isinstance(key, (int, np.integer)):
        if not -(2**31) <= key < 2**32:  # without jax_enable_x64 JAX would drop the upper half
            raise ValueError(f"A seed must be a whole number from 0 to 2**32 - 1, got {key}.")
        return jax.random.key(int(key))
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(key)


def run_key(seed: Any) -> Any:
    """The key of all random numbers of a run, from its seed."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to 2**32 - 1, got {seed!r}.")
    return jax.random.key(np.uint32(seed))


@functools.partial(jax.jit, static_argnums=1)
def split_keys(key: PRNGKey, n: int) -> tuple[PRNGKey, ...]:
    """``n`` keys from one, in one compiled program."""
    return tuple(jax.random.split(key, n))


def draw_components(key: PRNGKey, log_weights: Float[Array, " K"], n: int) -> Int[Array, " n"]:
    """``n`` component indices by inverting the cumulative weights; they do not depend on the padding."""
    cumulative = jnp.cumsum(jnp.exp(log_weights))
    u = jax.random.uniform(key, (n,), cumulative.dtype) * cumulative[-1]
    index = jnp.searchsorted(cumulative, u, side="right")
    last = jnp.max(jnp.where(log_weights > -jnp.inf, jnp.arange(log_weights.shape[0]), 0))
    return jnp.minimum(index, last).astype(jnp.int32)
