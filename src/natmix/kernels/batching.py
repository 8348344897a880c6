"""Reductions over the batch of a `jax.vmap`, so that branches and loops stay branches and loops.

Under `jax.vmap` a `jax.lax.cond` whose condition differs within the batch executes both branches, and a loop
whose length differs copies its carry in every round. With a condition reduced over the batch, the branch is
executed if any element needs it, and the loop runs as long as the longest. Each element masks its own result.
Outside of `jax.vmap` these functions return their argument.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from natmix.array_types import Count, Flag


@jax.custom_batching.custom_vmap
def batch_any(flag: Flag) -> Flag:
    """Whether it holds for any element of the batch."""
    return flag


@batch_any.def_vmap
def _batch_any(size: int, batched: list[bool], flag: Bool[Array, "..."]) -> tuple[Flag, bool]:
    return (jnp.any(flag, axis=0) if batched[0] else flag), False


@jax.custom_batching.custom_vmap
def batch_max(number: Count) -> Count:
    """The largest number of the batch."""
    return number


@batch_max.def_vmap
def _batch_max(size: int, batched: list[bool], number: Int[Array, "..."]) -> tuple[Count, bool]:
    return (jnp.max(number, axis=0) if batched[0] else number), False
