"""The calls, with their shapes. Rows of samples beyond ``count`` are zero in what they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from natmix.array_types import Count, Scalar
from natmix.kernels.native.library import available

_CHUNKS = 16
"""Parts of the samples that are summed by themselves, so that threads share the work."""


def log_prob(
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    offset: Float[Array, " K"],
    present: Bool[Array, " K"] | None,
    count: Count | None,
) -> Float[Array, "N K"]:
    """-|W (x - m)|^2 / 2 - offset; -inf for components that are not present."""
    if present is None:
        present = jnp.ones(mean.shape[0], bool)
    return _call("log_prob", (x.shape[0], mean.shape[0]), x, mean, W, _count(count, x), offset, present)


def relevant_log_prob(
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    offset: Float[Array, " K"],
    log_weights: Float[Array, " K"],
    log_share: Float[Array, " K"],
    near: Int[Array, " N"],
    log_background: Float[Array, " N"],
    count: Count | None,
) -> Float[Array, "N K"]:
    """`log_prob`, but -inf where no sum over samples or components changes a digit by it.

    That is where it is far below ``log_background`` and below another one's ``log_share`` + log density. The
    background is inf where it is not known, and NaN for samples that have no weight.
    """
    rows = _count(count, x)
    present = log_weights != -jnp.inf
    shape, near = (x.shape[0], mean.shape[0]), near.astype(jnp.int32)
    return _call("relevant", shape, x, mean, W, rows, offset, present, log_share, near, log_background)


def mixture_log_prob(
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    offset: Float[Array, " K"],
    log_weights: Float[Array, " K"],
    count: Count | None,
) -> Float[Array, " N"]:
    """Log sum_k exp(log_prob + log_weights)."""
    present = log_weights != -jnp.inf
    return _call(
        "mixture_log_prob", (x.shape[0],), x, mean, W, _count(count, x), offset, present, log_weights
    )


def meet(
    x: Float[Array, "N D"],
    mean: Float[Array, "HK D"],
    W: Float[Array, "HK D D"],
    offset: Float[Array, " HK"],
    used: Float[Array, " HK"],
    counts: Float[Array, " HK"],
    log_own: Float[Array, " N"],
    generations: int,
    count: Count | None,
) -> tuple[Float[Array, " N"], Float[Array, "N H"]]:
    """Log sum_g used_g N(x; g) over all Gaussians, and log sum_g counts_g N(x; g) over each generation.

    Gaussians far below ``log_own``, the log density that a sample was drawn with, are left out.
    """
    arrays, dtype = _of_one_type((x, mean, W, _count(count, x), offset, used, counts, log_own))
    N = x.shape[0]
    out = jax.ShapeDtypeStruct((N,), dtype), jax.ShapeDtypeStruct((N, generations), dtype)
    mass, each = _function("meet", out)(*arrays)
    return mass, each


def score(
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    log_components: Float[Array, "N K"],
    log_weights: Float[Array, " K"],
    count: Count | None,
) -> Float[Array, "N D"]:
    """-sum_k q(k|x) W^T W (x - m)."""
    return _call("score", x.shape, x, mean, W, _count(count, x), log_components, log_weights)


def pulled_sums(
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    r: Float[Array, "N K"],
    count: Count | None,
) -> Float[Array, "N D"]:
    """-sum_k r W^T W (x - m)."""
    return _call("pulled", x.shape, x, mean, W, _count(count, x), r)


def log_sums(
    log_components: Float[Array, "N K"], log_weights: Float[Array, " K"], count: Count | None
) -> Float[Array, " N"]:
    """Log sum_k exp(log_components + log_weights)."""
    N = log_components.shape[0]
    return _call("log_sums", (N,), log_components, _count(count, log_components), log_weights)


def largest_log_weights(
    log_components: Float[Array, "N K"],
    log_background: Float[Array, " N"],
    valid: Bool[Array, " N"],
    count: Count | None,
) -> Float[Array, " K"]:
    """The largest log_components - log_background over valid samples, -inf without one."""
    shape = (_CHUNKS, log_components.shape[1])
    parts = _call("largest", shape, log_components, _count(count, log_components), log_background, valid)
    return jnp.max(parts, axis=0)


def weighted_sums(
    log_components: Float[Array, "N K"],
    log_background: Float[Array, " N"],
    valid: Bool[Array, " N"],
    top: Float[Array, " K"],
    columns: Float[Array, "N C"],
    count: Count | None,
) -> tuple[Float[Array, "K C"], Float[Array, " K"]]:
    """sum_n w columns_n and sum_n w^2 with w = exp(log_components - log_background - top)."""
    shape = (_CHUNKS, columns.shape[1] + 1, log_components.shape[1])
    rows = _count(count, log_components)
    parts = _call("sums", shape, log_components, rows, log_background, valid, top, columns)
    *sums, squares = jnp.sum(parts, axis=0)
    return jnp.stack(sums, axis=1), squares


def sample_sums(
    log_components: Float[Array, "N K"],
    log_background: Float[Array, " N"],
    valid: Bool[Array, " N"],
    top: Float[Array, " K"],
    factors: Float[Array, " K"],
    count: Count | None,
) -> Float[Array, " N"]:
    """sum_k w factors_k."""
    rows = _count(count, log_components)
    shape = (log_components.shape[0],)
    return _call("sample_sums", shape, log_components, rows, log_background, valid, top, factors)


def stein(
    log_components: Float[Array, "N K"],
    log_background: Float[Array, " N"],
    valid: Bool[Array, " N"],
    top: Float[Array, " K"],
    columns: Float[Array, "N C"],
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    v: Float[Array, "N D"],
    L: Float[Array, "K D D"],
    W: Float[Array, "K D D"],
    count: Count | None,
) -> tuple[Float[Array, "K D D"], Float[Array, "K D"], Float[Array, "K C"]]:
    """The symmetric part of W sum_n w (x - m) v^T L, then L^T sum_n w v and sum_n w columns_n.

    A component whose sums of the columns are all zero is taken to have no weights: one of them is positive.
    """
    (K, D), C = mean.shape, columns.shape[1]
    rows = _count(count, log_components)
    arrays = (log_components, rows, log_background, valid, top, columns, x, mean, v, L, W)
    same, dtype = _of_one_type(arrays)
    out = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in ((K, D, D), (K, D), (K, C)))
    hessian, gradient, sums = _function("moments", out)(*same)
    return hessian, gradient, sums


def trust_region(
    A: Float[Array, "K D D"],
    a: Float[Array, "K D"],
    bound: Float[Array, " K"],
    usable: Bool[Array, " K"],
    temperature: Scalar,
    most_rounding: float,
    mean: Float[Array, "K D"],
    L: Float[Array, "K D D"],
    W: Float[Array, "K D D"],
) -> tuple[Float[Array, "K D"], Float[Array, "K D D"], Float[Array, "K D D"], Bool[Array, " K"]]:
    """The longest steps with KL(new || old) <= bound: new means, L and W, and which of them succeeded.

    A is symmetric. Where a step fails, is not ``usable``, or would make its Gaussian too narrow for the float
    type, the Gaussian stays.
    """
    limits = (bound, usable, temperature, jnp.asarray(most_rounding, mean.dtype))
    same, dtype = _of_one_type((A, a, *limits, mean, L, W))
    shapes = (mean.shape, L.shape, W.shape)
    out = (*(jax.ShapeDtypeStruct(s, dtype) for s in shapes), jax.ShapeDtypeStruct(usable.shape, bool))
    mean, L, W, ok = _function("trust_region", out)(*same)
    return mean, L, W, ok


def regressions(
    log_components: Float[Array, "N K"],
    log_background: Float[Array, " N"],
    valid: Bool[Array, " N"],
    top: Float[Array, " K"],
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    offset: Float[Array, " K"],
    present: Bool[Array, " K"],
    reward: Float[Array, " N"],
    zero: Bool[Array, " N"],
    size: Float[Array, " K"],
    total: Float[Array, " K"],
    centre: Float[Array, " K"],
    extra: Float[Array, " K"],
    ridge: Float[Array, " K"],
    count: Count | None,
) -> Float[Array, "K F"]:
    """(sum_n w phi phi^T + ridge I)^-1 sum_n w phi r with centred features phi of y = W (x - m).

    The weights are exp(log_components - log_background - top) / size and sum up to ``total``; r is the reward
    without ``centre``, and where ``zero`` also without ``extra``. Zero for components that are not present,
    NaN where the equations have no solution.
    """
    K, D = mean.shape
    rows = _count(count, log_components)
    samples = (log_components, rows, log_background, valid, top, x)
    gaussians = (mean, W, offset, present)
    shape = (K, D * (D + 3) // 2)
    return _call("regressions", shape, *samples, *gaussians, reward, zero, size, total, centre, extra, ridge)


def draws(
    keys: UInt32[Array, "K 2"],
    number: Int[Array, " K"],
    mean: Float[Array, "K D"],
    L: Float[Array, "K D D"],
    rows: int,
) -> tuple[Float[Array, "N D"], Int[Array, " N"]]:
    """The first ``number`` of m + L e with normal numbers e of each key; and which Gaussian they come from.

    In single precision; the keys are those of JAX's usual generator.
    """
    out = jax.ShapeDtypeStruct((rows, mean.shape[1]), jnp.float32), jax.ShapeDtypeStruct((rows,), jnp.int32)
    return _function("draws", out)(keys, number.astype(jnp.int32), mean, L)


def logistic(
    x: Float[Array, "N D"],
    rows: Float[Array, "R D"],
    precision: float,
    count: Count | None,
    *,
    gradient: bool,
) -> tuple[Float[Array, " N"], Float[Array, "N D"] | None]:
    """sum_r log sigmoid(rows_r . x) - precision |x|^2 / 2, and its gradient in x if wanted."""
    prior = jnp.asarray(precision, x.dtype)
    return _with_gradient("logistic", gradient, x, rows, _count(count, x), prior)


def logistic_minibatch(
    x: Float[Array, "N D"],
    rows: Float[Array, "R D"],
    precision: float,
    start: Int[Array, " N"],
    stride: Int[Array, " N"],
    size: int,
    count: Count | None,
    *,
    gradient: bool,
) -> tuple[Float[Array, " N"], Float[Array, "N D"] | None]:
    """R / size sum_j log sigmoid(rows_r . x) - precision |x|^2 / 2 with r = (start + stride j) mod R."""
    batch, prior = _minibatch(start, stride, size), jnp.asarray(precision, x.dtype)
    return _with_gradient("logistic_minibatch", gradient, x, rows, _count(count, x), *batch, prior)


def network(
    x: Float[Array, "N 177"],
    features: Float[Array, "R 11"],
    quality: Float[Array, " R"],
    start: Int[Array, " N"],
    stride: Int[Array, " N"],
    size: int,
    count: Count | None,
    *,
    gradient: bool,
) -> tuple[Float[Array, " N"], Float[Array, "N 177"] | None]:
    """-R / size sum_j (f(features_r) - quality_r)^2 - |x|^2 / 2 with r = (start + stride j) mod R.

    f is the network 11-8-8-1 with weights x, hidden layers of sigmoids and a linear output.
    """
    batch = _minibatch(start, stride, size)
    return _with_gradient("network", gradient, x, features, _count(count, x), *batch, quality)


def _minibatch(start: Array, stride: Array, size: int) -> tuple[Array, Array, Array]:
    return start.astype(jnp.int32), stride.astype(jnp.int32), jnp.asarray(size, jnp.int32)


def front(mask: Bool[Array, " N"]) -> Int[Array, " N"]:
    """The rows where ``mask`` holds, in their order, and then the last row."""
    return _function("front", jax.ShapeDtypeStruct(mask.shape, jnp.int32))(mask)


def count_rows(row: Int[Array, " N"], mask: Bool[Array, " N"], K: int) -> Int[Array, " K"]:
    """How often each row occurs where ``mask`` holds."""
    return _function("count", jax.ShapeDtypeStruct((K,), jnp.int32))(row.astype(jnp.int32), mask)


def put_chosen(
    store: Shaped[Array, "S ..."], rows: Shaped[Array, "N ..."], chosen: Bool[Array, " N"], start: Count
) -> Shaped[Array, "S ..."]:
    """The rows where ``chosen`` holds in slots start, start + 1, ... of the store, around its end."""
    out = jax.ShapeDtypeStruct(store.shape, store.dtype)
    put = _function("put", out, vmap_method="broadcast_all", input_output_aliases={0: 0})
    return put(store, rows.astype(store.dtype), chosen, start.astype(jnp.int32) % store.shape[0])


def _call(name: str, shape: tuple[int, ...], *arrays: Array) -> Array:
    """By numbers of one type, single or double precision."""
    same, dtype = _of_one_type(arrays)
    return _function(name, jax.ShapeDtypeStruct(shape, dtype))(*same)


def _with_gradient(name: str, gradient: bool, x: Array, *arrays: Array) -> tuple[Array, Array | None]:
    """A value for every point x, and its gradient."""
    same, dtype = _of_one_type((x, *arrays))
    shapes = (x.shape[:1], x.shape) if gradient else (x.shape[:1],)
    out = _function(name, tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))(*same)
    return out[0], out[1] if gradient else None


def _of_one_type(arrays: tuple[Array, ...]) -> tuple[list[Array], Any]:
    dtype = jnp.result_type(jnp.float32, *[a for a in arrays if jnp.issubdtype(a.dtype, jnp.floating)])
    return [a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a for a in arrays], dtype


def _function(name: str, out: Any, vmap_method: str = "expand_dims", **options: Any) -> Callable[..., Any]:
    """XLA's call of the loop. Members of a `jax.vmap` are one call, see `c/members.c`."""
    if not available():
        raise RuntimeError(
            "natmix was installed without its native kernels; ask `Plan.native` of the plan in use first."
        )
    return jax.ffi.ffi_call(f"natmix_{name}", out, vmap_method=vmap_method, **options)


def _count(count: Count | None, rows: Array) -> Count:
    return jnp.asarray(rows.shape[0] if count is None else count, jnp.int32)
