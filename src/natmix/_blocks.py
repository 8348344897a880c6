"""Work on samples in blocks: bounded memory, and no time spent on padding.

Arrays of samples have a fixed length N of which only the first ``count`` rows are real. The loops
here stop after the block that holds the last real row; what they return beyond it is zero.
Callers mask by ``count`` (or by validity) and never read those rows.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from natmix._lockstep import most
from natmix._types import Count, PyTree

_CPU_ELEMENTS = 2**19
_ACCELERATOR_ELEMENTS = (2**25, 2**28)
_BYTES_PER_ELEMENT = 256
"""Of an accelerator's memory, for each element of a block: 2^28 elements on one with 64 GiB or more."""


def block_rows(elements_per_row: int) -> int:
    """How many samples to handle at once when each needs ``elements_per_row`` temporaries."""
    return max(64, _budget() // max(1, elements_per_row))


def _budget() -> int:
    if jax.default_backend() == "cpu":
        return _CPU_ELEMENTS
    stats = jax.local_devices()[0].memory_stats() or {}
    fewest, most = _ACCELERATOR_ELEMENTS
    return min(max(stats.get("bytes_limit", 0) // _BYTES_PER_ELEMENT, fewest), most)


def map_blocks(
    fn: Callable[..., PyTree], arrays: tuple[PyTree, ...], rows: int, count: Count | int | None = None
) -> PyTree:
    """Apply ``fn`` to blocks of ``rows`` samples; results have the samples first."""
    n = _length(arrays)
    if n <= rows:
        return fn(*arrays)
    padded, blocks = _pad(arrays, n, rows)
    out_type = jax.eval_shape(fn, *_block(padded, 0, rows))
    out = jax.tree.map(lambda a: jnp.zeros((blocks * rows, *a.shape[1:]), a.dtype), out_type)

    def body(i: Count, out: PyTree) -> PyTree:
        result = fn(*_block(padded, i * rows, rows))
        return jax.tree.map(lambda o, r: jax.lax.dynamic_update_slice_in_dim(o, r, i * rows, 0), out, result)

    out = jax.lax.fori_loop(0, _trips(n, rows, count), body, out)
    return jax.tree.map(lambda o: o[:n], out)


def sum_blocks(
    fn: Callable[..., PyTree], arrays: tuple[PyTree, ...], rows: int, count: Count | int | None = None
) -> PyTree:
    """The sum of ``fn`` over blocks of samples; ``fn`` must give zero for rows of zeros."""
    n = _length(arrays)
    if n <= rows:
        return fn(*arrays)
    padded, _ = _pad(arrays, n, rows)
    out_type = jax.eval_shape(fn, *_block(padded, 0, rows))
    out = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), out_type)

    def body(i: Count, out: PyTree) -> PyTree:
        return jax.tree.map(jnp.add, out, fn(*_block(padded, i * rows, rows)))

    return jax.lax.fori_loop(0, _trips(n, rows, count), body, out)


def map_present(fn: Callable[..., PyTree], rows: PyTree, present: Bool[Array, " K"], batch: int) -> PyTree:
    """Apply ``fn``, which takes ``batch`` rows at once, to the rows present; zeros for the others."""
    K = present.shape[0]
    front = jnp.argsort(~present, stable=True)
    count = jnp.sum(present, dtype=jnp.int32)
    out = map_blocks(lambda r: fn(*r), (jax.tree.map(lambda a: a[front], rows),), min(batch, K), count)
    back = jnp.argsort(front)

    def masked(o: Array) -> Array:
        return jnp.where(present.reshape(-1, *[1] * (o.ndim - 1)), o[back], jnp.zeros((), o.dtype))

    return jax.tree.map(masked, out)


def rows_at_once(elements: int, on_cpu: int) -> int:
    """How many components to handle at once when each needs ``elements`` temporaries.

    Few on a CPU, so that absent ones cost nothing; on an accelerator as many as fit.
    """
    return on_cpu if jax.default_backend() == "cpu" else max(1, _budget() // max(1, elements))


def _length(arrays: PyTree) -> int:
    return jax.tree.leaves(arrays)[0].shape[0]


def _pad(arrays: PyTree, n: int, rows: int) -> tuple[PyTree, int]:
    blocks = -(-n // rows)
    extra = blocks * rows - n
    return jax.tree.map(lambda a: jnp.pad(a, [(0, extra)] + [(0, 0)] * (a.ndim - 1)), arrays), blocks


def _block(arrays: PyTree, start: Count | int, rows: int) -> PyTree:
    return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, rows, 0), arrays)


def _trips(n: int, rows: int, count: Count | int | None) -> Count | int:
    if count is None:
        return -(-n // rows)
    return (most(jnp.minimum(count, n)) + rows - 1) // rows
