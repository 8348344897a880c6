"""A separate minibatch for every point."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from natmix.array_types import PRNGKey


def start_and_stride(key: PRNGKey, points: int, rows: int) -> tuple[Int[Array, " N"], Int[Array, " N"]]:
    """Start and stride of every point's minibatch, whose rows are (start + stride j) mod rows, j = 0, 1, ...

    Start and stride are drawn uniformly and independently for every point, the stride among the numbers
    coprime to ``rows``. So no row occurs twice in a minibatch, every row is equally likely (the estimate is
    unbiased), and two random numbers suffice where random subsets would need a sort per point. If ``rows`` is
    prime every pair of rows is equally likely too and the variance is that of drawing without
    replacement; otherwise only nearly so, provided the rows are in random order.
    """
    key_start, key_stride = jax.random.split(key)
    start = jax.random.randint(key_start, (points, 1), 0, rows, jnp.int32)
    strides = jnp.asarray(_coprime(rows), jnp.int32)
    stride = strides[jax.random.randint(key_stride, (points, 1), 0, strides.shape[0])]
    return start[:, 0], stride[:, 0]


def minibatch_rows(
    start: Int[Array, " N"], stride: Int[Array, " N"], rows: int, size: int
) -> Int[Array, "N size"]:
    """Which ``size`` of ``rows`` rows each point sees."""
    return (start[:, None] + stride[:, None] * jnp.arange(size, dtype=jnp.int32)) % rows


def check_size(size: int, rows: int) -> int:
    """The size of minibatches, checked."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 1 <= size <= rows:
        raise ValueError(
            f"minibatch must be a whole number from 1 to {rows}, the number of rows, got {size!r}."
        )
    return int(size)


def _coprime(rows: int) -> list[int]:
    return [a for a in range(1, max(rows, 2)) if math.gcd(a, rows) == 1]
