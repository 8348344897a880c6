"""The calls, with their shapes. Rows of samples beyond ``count`` are zero in what they return."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from natmix._types import Count
from natmix.native._library import available

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


def mixture_log_prob(
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    offset: Float[Array, " K"],
    log_weights: Float[Array, " K"],
    count: Count | None,
) -> Float[Array, " N"]:
    """Log sum_k exp(log_prob + log_weights)."""
    present = log_weights > -jnp.inf
    return _call(
        "mixture_log_prob", (x.shape[0],), x, mean, W, _count(count, x), offset, present, log_weights
    )


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


def moments(
    log_components: Float[Array, "N K"],
    log_background: Float[Array, " N"],
    valid: Bool[Array, " N"],
    top: Float[Array, " K"],
    columns: Float[Array, "N C"],
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    v: Float[Array, "N D"],
    count: Count | None,
) -> tuple[Float[Array, "K D D"], Float[Array, "K D"], Float[Array, "K C"]]:
    """sum_n w (x - m) v^T, sum_n w v and sum_n w columns_n."""
    (K, D), C = mean.shape, columns.shape[1]
    rows = _count(count, log_components)
    shape = (K, (D + 1) * D + C)
    out = _call("moments", shape, log_components, rows, log_background, valid, top, columns, x, mean, v)
    return out[:, : D * D].reshape(K, D, D), out[:, D * D : D * D + D], out[:, D * D + D :]


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


def _call(name: str, shape: tuple[int, ...], *arrays: Array) -> Array:
    """By numbers of one type, single or double precision."""
    dtype = jnp.result_type(jnp.float32, *[a for a in arrays if jnp.issubdtype(a.dtype, jnp.floating)])
    same = [a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a for a in arrays]
    return _function(name, jax.ShapeDtypeStruct(shape, dtype))(*same)


def _function(name: str, out: Any) -> Callable[..., Any]:
    if not available():
        raise RuntimeError(
            "natmix was installed without its loops in machine code; ask `natmix.native.used` first."
        )
    return jax.ffi.ffi_call(f"natmix_{name}", out, vmap_method="sequential")


def _count(count: Count | None, rows: Array) -> Count:
    return jnp.asarray(rows.shape[0] if count is None else count, jnp.int32)
