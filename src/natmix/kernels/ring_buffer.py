"""Selecting rows of arrays, and writing them one after another into a ring buffer.

Forms of writing:

    native      by a compiled kernel, in place.
    slices      two slices, for a CPU without native kernels, as XLA's scatter is slow there.
    scatter     on accelerators; on several devices, where each picks the rows for its own slots; and where
                there are more rows than slots.

Forms of finding the rows where a mask holds: native; and binary search in their running count, by a loop
(scan) on a CPU, unrolled on an accelerator: there a loop has several kernels per halving, and all halvings
unrolled are one kernel.

Forms of counting rows: native, and scatter.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from natmix.array_types import Count
from natmix.kernels import native
from natmix.kernels.forms import PlanRows, first_applicable, otherwise
from natmix.kernels.plan import Plan, current
from natmix.kernels.sharding import everywhere

Form = Literal["native", "slices", "scatter"]
SearchForm = Literal["scan", "scan_unrolled"]
FrontForm = Literal["native"] | SearchForm
CountForm = Literal["native", "scatter"]


def _native(plan: Plan, *sizes: int) -> bool:
    return plan.native


FORMS: tuple[tuple[Form, Callable[[Plan, int, int], bool]], ...] = (
    ("native", _native),
    ("slices", lambda plan, slots, rows: plan.on_one_cpu and rows <= slots),
    ("scatter", otherwise),
)
SEARCH_FORMS: PlanRows[SearchForm] = (("scan", lambda plan: plan.on_cpu), ("scan_unrolled", otherwise))
FRONT_FORMS: PlanRows[FrontForm] = (("native", _native), *SEARCH_FORMS)
COUNT_FORMS: PlanRows[CountForm] = (("native", _native), ("scatter", otherwise))


def choose(plan: Plan, slots: int, rows: int) -> Form:
    """How to write up to ``rows`` rows into so many slots."""
    return first_applicable(FORMS, plan, slots, rows)


def put_chosen(
    stores: tuple[Array, ...],
    rows: tuple[Array, ...],
    chosen: Bool[Array, " N"],
    start: Count,
    form: Form | None = None,
) -> tuple[Array, ...]:
    """Write the ``chosen`` rows to slots start, start + 1, ... of each store; if too many, only the last."""
    S, N = stores[0].shape[0], chosen.shape[0]
    form = form or choose(current(), S, N)
    if form == "native":
        return tuple(native.ring_buffer_write(s, r, chosen, start) for s, r in zip(stores, rows, strict=True))
    count = jnp.sum(chosen, dtype=jnp.int32)
    if form == "slices":
        rows = to_front(chosen, *rows)
        return tuple(put_circular(s, r, start, count) for s, r in zip(stores, rows, strict=True))
    chosen = everywhere(chosen)
    number = jnp.cumsum(chosen) - 1
    nowhere = S + jnp.arange(N)  # out of range and all different, so that indices are unique
    slot = jnp.where(chosen & (number >= count - S), (start + number) % S, nowhere)
    pairs = zip(stores, everywhere(rows), strict=True)
    return tuple(s.at[slot].set(r, mode="drop", unique_indices=True) for s, r in pairs)


def put_circular(store: Array, rows: Array, start: Count, count: Count) -> Array:
    """Write the first ``count`` of ``rows``, of which there are at most S, to slots start, start + 1, ..."""
    S, N = store.shape[0], rows.shape[0]
    first = jnp.minimum(start, S - N)
    store = _put(store, rows, first, jnp.arange(N) - (start - first), count)
    return _put(store, rows, jnp.zeros_like(first), jnp.arange(N) + (S - start), count)


def _put(store: Array, rows: Array, first: Count, number: Int[Array, " N"], count: Count) -> Array:
    """Write row ``number[i]``, if it is one of the first ``count``, to slot first + i."""
    N = rows.shape[0]
    wanted = ((number >= 0) & (number < count)).reshape(-1, *[1] * (rows.ndim - 1))
    present = jax.lax.dynamic_slice_in_dim(store, first, N, 0)
    merged = jnp.where(wanted, rows[jnp.clip(number, 0, N - 1)], present)
    return jax.lax.dynamic_update_slice_in_dim(store, merged, first, 0)


def leading(
    number: Int[Array, " K"], most: int, form: SearchForm | None = None
) -> tuple[Int[Array, " N"], Int[Array, " N"]]:
    """The first ``number`` of the ``most`` places of each row, one row after the other: rows and places.

    Places are counted through all rows; the result is undefined after the last one.
    """
    form = form or first_applicable(SEARCH_FORMS, current())
    K = number.shape[0]
    ends = jnp.cumsum(number)
    i = jnp.arange(K * most, dtype=jnp.int32)
    row = jnp.minimum(jnp.searchsorted(ends, i, side="right", method=form), K - 1).astype(jnp.int32)
    place = row * most + i - (ends - number)[row].astype(jnp.int32)
    return row, jnp.minimum(place, K * most - 1)


def to_front(mask: Bool[Array, " N"], *arrays: Array) -> tuple[Array, ...]:
    """The arrays with the rows where ``mask`` holds first, in their order; undefined after them."""
    order, arrays = front(mask), everywhere(arrays)
    return tuple(a[order] for a in arrays)


def front(mask: Bool[Array, " N"], form: FrontForm | None = None) -> Int[Array, " N"]:
    """The indices where ``mask`` holds, in their order; undefined after them."""
    form = form or first_applicable(FRONT_FORMS, current())
    if form == "native":
        return native.nonzero(mask)
    n = mask.shape[0]
    order = jnp.searchsorted(jnp.cumsum(everywhere(mask)), jnp.arange(1, n + 1), method=form)
    return jnp.minimum(order, n - 1).astype(jnp.int32)


def count_rows(
    row: Int[Array, " N"],
    mask: Bool[Array, " N"],
    K: int,
    form: CountForm | None = None,
) -> Int[Array, " K"]:
    """How often each number from 0 to K - 1 occurs in ``row`` where ``mask`` holds."""
    form = form or first_applicable(COUNT_FORMS, current())
    if form == "native":
        return native.masked_bincount(row, mask, K)
    return jnp.zeros(K, jnp.int32).at[row].add(mask.astype(jnp.int32))
