"""Stein's sums: weighted sums over samples of y (grad R)^T and of grad R, for each of K Gaussians.

They are the expected Hessian and gradient by Stein's lemma (Eq. 7 and Eq. 6 of the paper), seen from whitened
coordinates: L^T E[S^-1 (x - m) (grad R)^T] L = E[y (grad R)^T] L with y = L^-1 (x - m).

Forms: as for scores (`natmix.kernels.scores`), with importance weights in place of responsibilities.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float

from natmix.array_types import Count
from natmix.kernels import native, scores
from natmix.kernels.blocks import map_components, sum_blocks
from natmix.kernels.coordinates import barrier, samples_per_block, stacked_whitened
from natmix.kernels.float64 import in_double
from natmix.kernels.forms import first_applicable
from natmix.kernels.gaussian_batch import Curvature, GaussianBatch, TriangularFactors, triangular
from natmix.kernels.importance_sums import largest_log_weights, relative_weights
from natmix.kernels.importance_weights import ImportanceWeights, importance_weights, own_weights
from natmix.kernels.linalg import einsum, symmetrise
from natmix.kernels.plan import Plan, current
from natmix.kernels.relevant_blocks import RelevantBlocks, blocks_of, summed_at_once, whitened_blocks
from natmix.kernels.sample_arrays import SampleArrays

Form = scores.Form
WeightedForm = scores.WeightedForm
FORMS = scores.FORMS
"""The same table as for scores: the work is the same."""
WEIGHTED_FORMS = scores.WEIGHTED_FORMS

FusedForm = Literal["native", "fused_quadratic", "fused_whitened"]
Moments = tuple[Curvature, Float[Array, "K D"]]
"""The weighted sums of y (grad R)^T L, symmetrised, and of L^T grad R."""


def choose(plan: Plan, gaussians: GaussianBatch, samples: int) -> Form:
    """Native kernels if they apply, the sparse form if skipping pairs pays, otherwise all pairs."""
    return first_applicable(FORMS, plan, gaussians, samples)


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


def stein_sums(
    gaussians: GaussianBatch,
    samples: SampleArrays,
    grad_ratio: Float[Array, "N D"],
    self_normalised: bool,
    form: Form | None = None,
) -> SteinSums:
    """Stein's sums with the weights q(x|o) / z(x) of samples shared by all components."""
    form = form or choose(current(), gaussians, samples.x.shape[0])
    if form == "native" or form == "fused_quadratic" or form == "fused_whitened":
        return _relative_stein_sums(form, gaussians, samples, grad_ratio, self_normalised)
    weights = importance_weights(samples.log_components, samples, self_normalised=self_normalised)
    moments = stein(gaussians, weights.values, samples.x, grad_ratio, samples.count, form)
    return _of_weights(moments, weights, samples)


def _relative_stein_sums(
    form: FusedForm,
    gaussians: GaussianBatch,
    samples: SampleArrays,
    grad_ratio: Float[Array, "N D"],
    self_normalised: bool,
) -> SteinSums:
    """By sums that compute the weights, relative to the largest, as they go."""
    largest = largest_log_weights(samples.log_components, samples)
    ok = jnp.isfinite(largest)
    top = jnp.where(ok, largest, 0)
    curvature, gradient, weight = _relative_moments(form, gaussians, samples, top, grad_ratio)
    inside, total = weight.T
    if self_normalised:
        factor, log_scale = 1 / jnp.maximum(total, 1e-30), jnp.zeros_like(top)
    else:
        factor = jnp.ones_like(top)
        log_scale = top - jnp.log(jnp.maximum(samples.count, 1).astype(top.dtype))
    return SteinSums(
        gaussians.scaled(curvature, factor),
        gradient * factor[:, None],
        inside * factor,
        total * factor,
        log_scale,
        ok,
    )


def own_stein_sums(
    gaussians: GaussianBatch, samples: SampleArrays, grad_ratio: Float[Array, "N D"], self_normalised: bool
) -> SteinSums:
    """Stein's sums where each component uses only its own new samples, all with the same weight."""
    weights = own_weights(samples, self_normalised=self_normalised)
    if samples.own is None:
        moments = stein(gaussians, weights.values, samples.x, grad_ratio, samples.count)
        return _of_weights(moments, weights, samples)
    w = jnp.where(samples.own >= 0, jnp.take_along_axis(weights.values.T, samples.own, axis=1), 0)
    moments = own_stein(gaussians, w, samples.x[samples.own], grad_ratio[samples.own])
    return _of_weights(moments, weights, samples)


def stein(
    gaussians: GaussianBatch,
    weights: Float[Array, "N K"],
    x: Float[Array, "N D"],
    gradients: Float[Array, "N D"],
    count: Count | None = None,
    form: WeightedForm | None = None,
) -> Moments:
    """Stein's sums with given weights."""
    chosen = form or first_applicable(WEIGHTED_FORMS, current(), gaussians, x.shape[0])
    if chosen == "sparse":
        moment = _sparse_moments(triangular(gaussians), weights, x, gradients, count)
        return gaussians.finish_cross_moment(moment), gaussians.pull(einsum("nk,nd->kd", weights, gradients))
    block, finish = _BLOCKS[chosen]
    rows = samples_per_block(chosen, gaussians, x.shape[0], count)
    moment, gradient = sum_blocks(Partial(block, gaussians), (weights, x, gradients), rows, count)
    return finish(gaussians, moment), gaussians.pull(gradient)


def own_stein(
    gaussians: GaussianBatch,
    weights: Float[Array, "K n"],
    x: Float[Array, "K n D"],
    gradients: Float[Array, "K n D"],
) -> Moments:
    """As `stein`, when each component has samples of its own."""

    def one(row: GaussianBatch, w: Array, x: Array, v: Array) -> tuple[Array, Array]:
        curvature, gradient = stein(jax.tree.map(lambda a: a[None], row), w[:, None], x, v)
        return curvature[0], gradient[0]

    return map_components(jax.vmap(one), (gaussians, weights, x, gradients))


def score_moments(
    gaussians: GaussianBatch, weights: Float[Array, "N K"], x: Float[Array, "N D"], count: Count | None = None
) -> Moments:
    """Weighted sums of y y^T - I and of y: derivatives of E[c] when the weights hold c."""
    rows = samples_per_block("whitened", gaussians, x.shape[0], None)
    second, first, total = sum_blocks(Partial(_whitened_moments, gaussians), (weights, x), rows, count)
    identity = gaussians.plus_identity(jnp.zeros_like(second))
    return second - gaussians.scaled(identity, total), first


def _of_weights(moments: Moments, weights: ImportanceWeights, samples: SampleArrays) -> SteinSums:
    inside = jnp.sum(jnp.where(samples.zero[:, None], 0, weights.values), axis=0)
    total = jnp.sum(weights.values, axis=0)
    return SteinSums(*moments, inside, total, weights.log_scale, weights.ok)


def _relative_moments(
    form: FusedForm,
    gaussians: GaussianBatch,
    samples: SampleArrays,
    top: Float[Array, " K"],
    grad_ratio: Float[Array, "N D"],
) -> tuple[Curvature, Float[Array, "K D"], Float[Array, "K 2"]]:
    """`Moments`, and the weight of samples with positive density and of all; relative to the largest."""
    positive = jnp.stack([~samples.zero, jnp.ones_like(samples.zero)], axis=1).astype(samples.x.dtype)
    arrays = (samples.log_components, samples.log_background, samples.valid)
    if form == "native":
        m, L, W = triangular(gaussians)
        return native.stein_sums(*arrays, top, positive, samples.x, m, grad_ratio, L, W, samples.count)
    coordinates = scores.FUSED[form]
    block, finish = _BLOCKS[coordinates]
    moment, gradient, weight = sum_blocks(
        Partial(_relative_sums, block, gaussians, top),
        (*arrays, positive, samples.x, grad_ratio),
        samples_per_block(coordinates, gaussians, samples.x.shape[0], samples.count),
        samples.count,
    )
    return finish(gaussians, moment), gaussians.pull(gradient), weight


def _relative_sums(
    moments: Callable[..., tuple[Array, Array]],
    gaussians: GaussianBatch,
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
    return moments(gaussians, w, x, grad_ratio)[0], sums[:, :-2], sums[:, -2:]


# All pairs, for one block of samples ------------------------------------------------------------
#
# sum_n w y v^T (quadratic, circular: sum_n w (x - m) v^T) and sum_n w v; how the first becomes a curvature.


def _whitened(gaussians: GaussianBatch, w: Array, x: Array, v: Array) -> tuple[Array, Array]:
    return gaussians.cross_moment(gaussians.whiten(x), w, v), einsum("bk,bd->kd", w, v)


def _stacked(gaussians: GaussianBatch, w: Array, x: Array, v: Array) -> tuple[Array, Array]:
    m, _, W = triangular(gaussians)
    y = stacked_whitened(x, m, W)
    return einsum("bki,bj->kij", y * w[:, :, None], v), einsum("bk,bd->kd", w, v)


def _quadratic(gaussians: GaussianBatch, w: Array, x: Array, v: Array) -> tuple[Array, Array]:
    return _parted(gaussians, _quadratic_in_double(x, w, v, gaussians.mean))


def _circular(gaussians: GaussianBatch, w: Array, x: Array, v: Array) -> tuple[Array, Array]:
    return _parted(gaussians, _circular_in_double(x, w, v, gaussians.mean))


def _parted(
    gaussians: GaussianBatch, both: Float[Array, "K DD_and_D"]
) -> tuple[Float[Array, "K D D"], Float[Array, "K D"]]:
    K, D = gaussians.mean.shape
    return both[:, : D * D].reshape(K, D, D), both[:, D * D :]


@in_double
def _quadratic_in_double(x: Array, w: Array, v: Array, mean: Array) -> Array:
    """sum_n w (x - m) v^T and, beside it, sum_n w v."""
    D = x.shape[1]
    last, values, weights = barrier((x.T, v.T, w.T))
    features = jnp.concatenate([(last[:, None] * values[None]).reshape(D * D, -1), values])
    return _about_mean(einsum("fn,kn->kf", features, weights), mean)


@in_double
def _circular_in_double(x: Array, w: Array, v: Array, mean: Array) -> Array:
    """The same."""
    D = x.shape[1]
    features = jnp.concatenate([(x[:, :, None] * v[:, None, :]).reshape(-1, D * D), v], axis=1)
    return _about_mean(einsum("nk,nf->kf", w, features), mean)


def _about_mean(sums: Array, mean: Array) -> Array:
    """From sum_n w x v^T."""
    K, D = mean.shape
    gradient = sums[:, D * D :]
    shifted = mean[:, :, None] * gradient[:, None, :]
    return jnp.concatenate([sums[:, : D * D] - shifted.reshape(K, D * D), gradient], axis=1)


def _of_whitened(gaussians: GaussianBatch, moment: Array) -> Curvature:
    return gaussians.finish_cross_moment(moment)


def _of_centred(gaussians: GaussianBatch, moment: Array) -> Curvature:
    """The symmetric part of L^-1 M L, of M = sum_n w (x - m) v^T."""
    _, L, W = triangular(gaussians)
    return symmetrise(einsum("kij,kjl,klm->kim", W, moment, L))


_BLOCKS: dict[str, tuple[Callable[..., tuple[Array, Array]], Callable[..., Curvature]]] = {
    "whitened": (_whitened, _of_whitened),
    "stacked": (_stacked, _of_whitened),
    "quadratic": (_quadratic, _of_centred),
    "circular": (_circular, _of_centred),
}


def _whitened_moments(
    gaussians: GaussianBatch, w: Float[Array, "B K"], x: Float[Array, "B D"]
) -> tuple[Array, Array, Array]:
    y = gaussians.whiten(x)
    return gaussians.second_moment(y, w), einsum("bk,kbd->kd", w, y), jnp.sum(w, axis=0)


# Without negligible pairs ------------------------------------------------------------------------


def _sparse_moments(
    factors: TriangularFactors,
    w: Float[Array, "N K"],
    x: Float[Array, "N D"],
    v: Float[Array, "N D"],
    count: Count | None,
) -> Float[Array, "K D D"]:
    """sum_n w y v^T."""
    blocks = RelevantBlocks.of(w, jnp.max(jnp.abs(w), axis=0), count)
    at_once = summed_at_once(factors)
    return map_components(Partial(_add_moments, x, v), (factors, blocks), blocks.counts > 0, at_once)


def _add_moments(
    x: Float[Array, "N D"], v: Float[Array, "N D"], factors: TriangularFactors, blocks: RelevantBlocks
) -> Float[Array, "K D D"]:
    def step(moment: Array, first: Array, w: Array) -> Array:
        y = whitened_blocks(factors, x, first, w != 0)
        return moment + einsum("kci,kcj->kij", y * w[:, :, None], blocks_of(v, first, w.shape[1]))

    return blocks.fold(step, jnp.zeros_like(factors.scale_tril))
