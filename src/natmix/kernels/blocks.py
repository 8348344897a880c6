"""Work on samples in blocks: bounded memory, and no time spent on padding.

Arrays of samples have a fixed length N, of which only the first ``count`` are real. The loops here stop after
the block that holds the last real sample; the result is zero beyond it. Callers mask by ``count`` (or by
validity) and never read those entries.

The functions passed in are pytrees (`natmix.kernels.sharding`): the arrays they need are their leaves.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool

from natmix.array_types import Count, PyTree
from natmix.kernels import sharding
from natmix.kernels.batching import batch_max
from natmix.kernels.plan import current, using

_CPU_ELEMENTS = 2**19
_ACCELERATOR_ELEMENTS = (2**25, 2**28)
_BYTES_PER_ELEMENT = 256
"""Bytes of an accelerator's memory per element of a block: 2^28 elements with 64 GiB or more."""


def block_rows(elements_per_row: int) -> int:
    """How many samples to handle at once when each needs ``elements_per_row`` temporaries."""
    return max(64, _budget() // max(1, elements_per_row))


def skipping(rows: int, n: int, count: Count | int | None) -> int:
    """The size of blocks where padding is skipped: on an accelerator about eight blocks instead of one.

    Half a block or less stays one block, because every round of a loop on an accelerator costs a delay.
    """
    if count is None or current().on_cpu or n <= rows // 2:
        return rows
    return max(min(rows, -(-n // 8)), rows // 16)


def _budget() -> int:
    plan = current()
    if plan.block_elements is not None:
        return plan.block_elements
    return _CPU_ELEMENTS if plan.on_cpu else plan.by_memory(_BYTES_PER_ELEMENT, *_ACCELERATOR_ELEMENTS)


def map_blocks(
    fn: Callable[..., PyTree],
    arrays: tuple[PyTree, ...],
    rows: int,
    count: Count | int | None = None,
    *,
    keep_blocks: bool = False,
) -> PyTree:
    """Apply ``fn`` to blocks of ``rows`` samples; results have the samples first.

    On several devices each has blocks of its own samples. With ``keep_blocks`` they are the blocks that one
    device would have, and they do not overlap.
    """
    n = _length(arrays)
    if current().mesh is not None:
        if keep_blocks and n <= rows:
            with using(current().alone()):
                return fn(*arrays)
        own = Partial(_own_blocks, map_blocks, fn, rows)
        return sharding.map_samples(own, arrays, count, rows if keep_blocks else 1)
    if n <= rows:
        return fn(*arrays)
    if keep_blocks and n % rows:
        real = n if count is None else jnp.minimum(count, n)
        out = map_blocks(fn, _pad(arrays, n, rows), rows, real, keep_blocks=True)
        return jax.tree.map(lambda o: o[:n], out)
    out_type = jax.eval_shape(fn, *_block(arrays, 0, rows))
    out = jax.tree.map(lambda a: jnp.zeros((n, *a.shape[1:]), a.dtype), out_type)

    def body(i: Count, out: PyTree) -> PyTree:
        # The last block starts early instead of ending in padding: some samples are then done twice.
        start = jnp.minimum(i * rows, n - rows)
        result = fn(*_block(arrays, start, rows))
        return jax.tree.map(lambda o, r: jax.lax.dynamic_update_slice_in_dim(o, r, start, 0), out, result)

    return jax.lax.fori_loop(0, _trips(n, rows, count), body, out)


def sum_blocks(
    fn: Callable[..., PyTree], arrays: tuple[PyTree, ...], rows: int, count: Count | int | None = None
) -> PyTree:
    """The sum of ``fn`` over blocks of samples; ``fn`` must give zero for samples that are all zero."""
    n = _length(arrays)
    if current().mesh is not None:
        return sharding.sum_samples(Partial(_own_blocks, sum_blocks, fn, rows), arrays, count)
    if n <= rows:
        return fn(*arrays)
    out_type = jax.eval_shape(fn, *_block(arrays, 0, rows))
    out = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), out_type)

    def body(i: Count, out: PyTree) -> PyTree:
        # The last block starts early instead of ending in padding, with zeros for samples counted already.
        start = jnp.minimum(i * rows, n - rows)
        block = _block(arrays, start, rows)
        if n % rows:
            block = _only(start + jnp.arange(rows) >= i * rows, block)
        return jax.tree.map(jnp.add, out, fn(*block))

    return jax.lax.fori_loop(0, _trips(n, rows, count), body, out)


def fold_blocks(
    fn: Callable[[PyTree, Count | int, PyTree], PyTree],
    start: PyTree,
    arrays: PyTree,
    rows: int,
    count: Count | int | None = None,
) -> PyTree:
    """``fn(carry, first sample, block)`` over blocks of ``rows`` samples; the last block may be shorter."""
    n = _length(arrays)
    if n <= rows:
        return fn(start, 0, arrays)
    full = n // rows

    def body(i: Count, carry: PyTree) -> PyTree:
        return fn(carry, i * rows, _block(arrays, i * rows, rows))

    carry = jax.lax.fori_loop(0, jnp.minimum(_trips(n, rows, count), full), body, start)
    if n % rows:
        carry = fn(carry, full * rows, _block(arrays, full * rows, n % rows))
    return carry


def _own_blocks(
    over_blocks: Callable[..., PyTree],
    fn: Callable[..., PyTree],
    rows: int,
    arrays: tuple[PyTree, ...],
    count: Count | int | None,
) -> PyTree:
    return over_blocks(fn, arrays, rows, count)


def map_components(
    fn: Callable[..., PyTree],
    slots: tuple[PyTree, ...],
    present: Bool[Array, " K"] | None = None,
    at_once: int | None = None,
) -> PyTree:
    """Apply ``fn`` to the slots of components, ``at_once`` of those present at a time; zeros for the others.

    Without ``present``, ``fn`` gets all slots together. On several devices each has its own components.
    """
    plan = current()
    if plan.mesh is not None:
        # Simulated devices share one thread pool. LAPACK's batched routines hold a thread while they wait for
        # others, which would deadlock: so components are done one at a time.
        if plan.on_cpu:
            present, at_once = jnp.ones(_length(slots), bool) if present is None else present, 1
        return sharding.map_slots(Partial(_own_components, fn, at_once), slots, present)
    if present is None:
        return fn(*slots)

    def masked(o: Array) -> Array:
        return jnp.where(present.reshape(-1, *[1] * (o.ndim - 1)), o, jnp.zeros((), o.dtype))

    K = present.shape[0]
    if at_once is None or at_once >= K:
        return jax.tree.map(masked, fn(*slots))
    front = jnp.argsort(~present, stable=True)
    count = jnp.sum(present, dtype=jnp.int32)
    out = map_blocks(fn, jax.tree.map(lambda a: a[front], slots), at_once, count)
    back = jnp.argsort(front)
    return jax.tree.map(lambda o: masked(o[back]), out)


def _own_components(
    fn: Callable[..., PyTree],
    at_once: int | None,
    slots: tuple[PyTree, ...],
    present: Bool[Array, " K"] | None,
) -> PyTree:
    return map_components(fn, slots, present, at_once)


def components_at_once(elements: int, on_cpu: int) -> int:
    """How many components to handle at once when each needs ``elements`` temporaries.

    Few on a CPU, so that absent components cost nothing; as many as fit on an accelerator.
    """
    return on_cpu if current().on_cpu else max(1, _budget() // max(1, elements))


def _length(arrays: PyTree) -> int:
    return jax.tree.leaves(arrays)[0].shape[0]


def _pad(arrays: PyTree, n: int, rows: int) -> PyTree:
    extra = -n % rows
    return jax.tree.map(lambda a: jnp.pad(a, [(0, extra)] + [(0, 0)] * (a.ndim - 1)), arrays)


def _block(arrays: PyTree, start: Count | int, rows: int) -> PyTree:
    return jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, start, rows, 0), arrays)


def _only(mask: Bool[Array, " B"], arrays: PyTree) -> PyTree:
    """The arrays with zeros where ``mask`` does not hold."""
    return jax.tree.map(
        lambda a: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, jnp.zeros((), a.dtype)), arrays
    )


def _trips(n: int, rows: int, count: Count | int | None) -> Count | int:
    if count is None:
        return -(-n // rows)
    return (batch_max(jnp.minimum(count, n)) + rows - 1) // rows
