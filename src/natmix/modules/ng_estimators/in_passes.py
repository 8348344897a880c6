"""Stein's sums without an array of weights: these are formed for some samples at a time."""

from typing import NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float

from natmix.gaussians import AbstractGaussians, FullGaussians
from natmix.gaussians.base import Curvature
from natmix.gaussians.kernels import AbstractKernel
from natmix.kernels import native, sharding
from natmix.kernels.blocks import map_blocks, sum_blocks
from natmix.kernels.importance_sums import largest_log_weights, relative_weights
from natmix.kernels.linalg import einsum
from natmix.mixture import Mixture
from natmix.modules.ng_estimators.base import responsibilities_and_log_density
from natmix.modules.records import Batch


class SteinSums(NamedTuple):
    """Sums over the samples with weights w / c: for self-normalised ones c is their sum, else the largest."""

    hessian: Curvature
    gradient: Float[Array, "K D"]
    inside: Float[Array, " K"]
    """Of the weights where the density is positive."""
    total: Float[Array, " K"]
    log_scale: Float[Array, " K"]
    """log(c / n) for standard weights, zero for self-normalised ones."""
    ok: Bool[Array, " K"]


def pays(gaussians: AbstractGaussians, batch: Batch) -> bool:
    """Whether arrays of N x K numbers are what takes the time."""
    on_cpu = jax.default_backend() == "cpu" and sharding.current() is None
    return on_cpu and (_has_loops(gaussians, batch) or not gaussians.goes_by_pairs(batch.x))


def mixture_score(mixture: Mixture, batch: Batch) -> Float[Array, "N D"]:
    """Grad log q(x)."""
    gaussians = mixture.components
    if _has_loops(gaussians, batch):
        W, log_weights = gaussians.inverse_tril, mixture.log_weights
        return native.score(batch.x, gaussians.mean, W, batch.log_components, log_weights, batch.count)
    kernel = gaussians.kernel()
    block = Partial(_score, kernel, mixture.log_weights)
    return map_blocks(block, (batch.log_components, batch.x), kernel.rows_per_block(), batch.count)


def stein_sums(
    gaussians: AbstractGaussians, batch: Batch, grad_ratio: Float[Array, "N D"], self_normalised: bool
) -> SteinSums:
    """`AbstractGaussians.stein` with the weights q(x|o) / z(x)."""
    largest = largest_log_weights(batch.log_components, batch)
    ok = jnp.isfinite(largest)
    top = jnp.where(ok, largest, 0)
    curvature, gradient, weight = _moments(gaussians, batch, top, grad_ratio)
    inside, total = weight.T
    if self_normalised:
        factor, log_scale = 1 / jnp.maximum(total, 1e-30), jnp.zeros_like(top)
    else:
        factor, log_scale = jnp.ones_like(top), top - jnp.log(jnp.maximum(batch.count, 1).astype(top.dtype))
    return SteinSums(
        gaussians.scaled(curvature, factor),
        gradient * factor[:, None],
        inside * factor,
        total * factor,
        log_scale,
        ok,
    )


def _moments(
    gaussians: AbstractGaussians, batch: Batch, top: Float[Array, " K"], grad_ratio: Float[Array, "N D"]
) -> tuple[Curvature, Float[Array, "K D"], Float[Array, "K 2"]]:
    """The Hessian, L^T sum_n w grad R, and the weight of samples with positive density and of all."""
    positive = jnp.stack([~batch.zero, jnp.ones_like(batch.zero)], axis=1).astype(batch.x.dtype)
    arrays = (batch.log_components, batch.log_background, batch.valid)
    if _has_loops(gaussians, batch):
        L, W = gaussians.scale_tril, gaussians.inverse_tril
        samples = (batch.x, gaussians.mean, grad_ratio)
        return native.stein_sums(*arrays, top, positive, *samples, L, W, batch.count)
    kernel = gaussians.kernel()
    moment, gradient, weight = sum_blocks(
        Partial(_sums, kernel, top),
        (*arrays, positive, batch.x, grad_ratio),
        kernel.rows_per_block(),
        batch.count,
    )
    return kernel.curvature(moment), gaussians.pull(gradient), weight


def _has_loops(gaussians: AbstractGaussians, batch: Batch) -> TypeGuard[FullGaussians]:
    return isinstance(gaussians, FullGaussians) and gaussians.has_loops(batch.x)


def _score(
    kernel: AbstractKernel,
    log_weights: Float[Array, " K"],
    log_components: Float[Array, "B K"],
    x: Float[Array, "B D"],
) -> Float[Array, "B D"]:
    r, _ = responsibilities_and_log_density(log_components, log_weights)
    return kernel.score(r, x)


def _sums(
    kernel: AbstractKernel,
    top: Float[Array, " K"],
    log_components: Float[Array, "B K"],
    log_background: Float[Array, " B"],
    valid: Bool[Array, " B"],
    positive: Float[Array, "B 2"],
    x: Float[Array, "B D"],
    grad_ratio: Float[Array, "B D"],
) -> tuple[Array, Array, Array]:
    w = relative_weights(top, log_components, log_background, valid)
    sums = einsum("bk,bc->kc", w, jnp.concatenate([grad_ratio, positive], axis=1))
    return kernel.moment(w, x, grad_ratio), sums[:, :-2], sums[:, -2:]
