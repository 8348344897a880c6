"""Numbers that all runs of a `jax.vmap` agree on, so that branches and loops stay what they are.

Under `jax.vmap` a `jax.lax.cond` whose condition differs within the batch runs both branches for all, and a
loop whose length differs copies what it carries in every round. If the batch agrees first the branch is taken
if any of its elements wants it, and the loop runs as long as the longest; each then masks its own result.
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
    """The largest of the batch."""
    return number


@batch_max.def_vmap
def _batch_max(size: int, batched: list[bool], number: Int[Array, "..."]) -> tuple[Count, bool]:
    return (jnp.max(number, axis=0) if batched[0] else number), False
