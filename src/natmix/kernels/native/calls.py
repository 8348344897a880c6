"""The calls, with their shapes. What they return is zero for samples beyond ``count``."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from natmix.array_types import Count, Scalar
from natmix.kernels.native.library import CORE

_PARTS = 16
"""Parts of the samples that are summed separately, so that threads share the work."""


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
    samples = _samples(x, mean, W, count)
    (log_density,) = CORE.call("log_prob", samples | {"offset": offset, "present": present})
    return log_density


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
    """`log_prob`, but -inf where it is negligible in every sum over samples or components.

    That is where it is far below ``log_background`` and below another one's ``log_share`` + log density. The
    background is inf where it is not known, and NaN for samples that have no weight.
    """
    samples = _samples(x, mean, W, count)
    components = {"offset": offset, "present": log_weights != -jnp.inf, "log_share": log_share}
    (log_density,) = CORE.call(
        "relevant_log_prob", samples | components | {"near": near, "log_background": log_background}
    )
    return log_density


def mixture_log_prob(
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    offset: Float[Array, " K"],
    log_weights: Float[Array, " K"],
    count: Count | None,
) -> Float[Array, " N"]:
    """Log sum_k exp(log_prob + log_weights)."""
    samples = _samples(x, mean, W, count)
    present = log_weights != -jnp.inf
    (log_density,) = CORE.call(
        "mixture_log_prob", samples | {"offset": offset, "present": present, "log_weights": log_weights}
    )
    return log_density


def background_log_density(
    x: Float[Array, "N D"],
    mean: Float[Array, "HK D"],
    W: Float[Array, "HK D D"],
    offset: Float[Array, " HK"],
    in_use: Float[Array, " HK"],
    drawn: Float[Array, " HK"],
    log_own: Float[Array, " N"],
    generations: int,
    count: Count | None,
) -> tuple[Float[Array, " N"], Float[Array, "N H"]]:
    """Log sum_g in_use_g N(x; g) over all Gaussians, and log sum_g drawn_g N(x; g) over each generation.

    Gaussians far below ``log_own``, the log density that a sample was drawn with, are left out.
    """
    samples = _samples(x, mean, W, count)
    numbers = {"in_use": in_use, "drawn": drawn}
    log_total, log_generation = CORE.call(
        "background_log_density",
        samples | numbers | {"offset": offset, "log_own": log_own},
        sizes={"H": generations},
    )
    return log_total, log_generation


def score(
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    log_components: Float[Array, "N K"],
    log_weights: Float[Array, " K"],
    count: Count | None,
) -> Float[Array, "N D"]:
    """-sum_k q(k|x) W^T W (x - m)."""
    samples = _samples(x, mean, W, count)
    (gradient,) = CORE.call("score", samples | {"log_components": log_components, "log_weights": log_weights})
    return gradient


def weighted_scores(
    x: Float[Array, "N D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    weights: Float[Array, "N K"],
    count: Count | None,
) -> Float[Array, "N D"]:
    """-sum_k weights W^T W (x - m), sums of the components' scores."""
    (gradient,) = CORE.call("weighted_scores", _samples(x, mean, W, count) | {"weights": weights})
    return gradient


def weighted_logsumexp(
    log_components: Float[Array, "N K"], log_weights: Float[Array, " K"], count: Count | None
) -> Float[Array, " N"]:
    """Log sum_k exp(log_components + log_weights)."""
    (sums,) = CORE.call(
        "weighted_logsumexp",
        {
            "log_components": log_components,
            "count": _count(count, log_components),
            "log_weights": log_weights,
        },
    )
    return sums


def largest_log_weights(
    log_components: Float[Array, "N K"],
    log_background: Float[Array, " N"],
    valid: Bool[Array, " N"],
    count: Count | None,
) -> Float[Array, " K"]:
    """The largest log_components - log_background over valid samples, -inf without one."""
    weights = _weights(log_components, log_background, valid, count)
    (parts,) = CORE.call("largest_log_weights", weights, sizes={"P": _PARTS})
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
    weights = _weights(log_components, log_background, valid, count)
    (parts,) = CORE.call("weighted_sums", weights | {"top": top, "columns": columns}, sizes={"P": _PARTS})
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
    weights = _weights(log_components, log_background, valid, count)
    (sums,) = CORE.call("sample_sums", weights | {"top": top, "factors": factors})
    return sums


def stein_sums(
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
    weights = _weights(log_components, log_background, valid, count)
    hessian, gradient, sums = CORE.call(
        "stein_sums", weights | {"top": top, "columns": columns, "x": x, "mean": mean, "v": v, "L": L, "W": W}
    )
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
    limits = {"bound": bound, "usable": usable, "temperature": temperature}
    most = jnp.asarray(most_rounding, mean.dtype)
    mean, L, W, ok = CORE.call(
        "trust_region", limits | {"A": A, "a": a, "most_rounding": most, "mean": mean, "L": L, "W": W}
    )
    return mean, L, W, ok


def more_regressions(
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
    D = mean.shape[1]
    weights = _weights(log_components, log_background, valid, count)
    gaussians = {"mean": mean, "W": W, "offset": offset, "present": present}
    rewards = {"reward": reward, "zero": zero, "centre": centre, "extra": extra}
    sums = {"size": size, "total": total, "ridge": ridge}
    features = {"F": D * (D + 3) // 2}
    (coefficients,) = CORE.call(
        "more_regressions", weights | gaussians | rewards | sums | {"top": top, "x": x}, sizes=features
    )
    return coefficients


def draws(
    keys: UInt32[Array, "K 2"],
    number: Int[Array, " K"],
    mean: Float[Array, "K D"],
    L: Float[Array, "K D D"],
    slots: int,
) -> tuple[Float[Array, "N D"], Int[Array, " N"]]:
    """The first ``number`` of m + L e with normal numbers e of each key; and which Gaussian they come from.

    In single precision; the keys are those of JAX's usual generator.
    """
    x, source = CORE.call("draws", {"keys": keys, "number": number, "mean": mean, "L": L}, sizes={"N": slots})
    return x, source


def nonzero(mask: Bool[Array, " N"]) -> Int[Array, " N"]:
    """The indices where ``mask`` holds, in their order, and then the last one."""
    (indices,) = CORE.call("nonzero", {"mask": mask})
    return indices


def masked_bincount(index: Int[Array, " N"], mask: Bool[Array, " N"], K: int) -> Int[Array, " K"]:
    """How often each index occurs where ``mask`` holds."""
    (counts,) = CORE.call("masked_bincount", {"index": index, "mask": mask}, sizes={"K": K})
    return counts


def ring_buffer_write(
    buffer: Shaped[Array, "S ..."], items: Shaped[Array, "N ..."], chosen: Bool[Array, " N"], start: Count
) -> Shaped[Array, "S ..."]:
    """The items where ``chosen`` holds in slots start, start + 1, ... of the buffer, around its end."""
    (written,) = CORE.call(
        "ring_buffer_write",
        {
            "buffer": buffer,
            "items": items.astype(buffer.dtype),
            "chosen": chosen,
            "start": start.astype(jnp.int32) % buffer.shape[0],
        },
        vmap_method="broadcast_all",
        input_output_aliases={0: 0},
    )
    return written


def _samples(
    x: Float[Array, "N D"], mean: Float[Array, "K D"], W: Float[Array, "K D D"], count: Count | None
) -> dict[str, Array]:
    return {"x": x, "mean": mean, "W": W, "count": _count(count, x)}


def _weights(
    log_components: Float[Array, "N K"],
    log_background: Float[Array, " N"],
    valid: Bool[Array, " N"],
    count: Count | None,
) -> dict[str, Array]:
    """What the weights exp(log_components - log_background - top) are formed of."""
    number = _count(count, log_components)
    return {
        "log_components": log_components,
        "count": number,
        "log_background": log_background,
        "valid": valid,
    }


def _count(count: Count | None, samples: Array) -> Count:
    return jnp.asarray(samples.shape[0] if count is None else count, jnp.int32)
