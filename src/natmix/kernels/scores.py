"""Scores grad log q(x) = -sum_k q(k|x) S^-1 (x - m) of a mixture of Gaussians at N samples.

Forms: those of `natmix.kernels.coordinates`; sparse, without negligible pairs of a sample and a component;
and native, which skips such pairs too and computes responsibilities as it goes.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.tree_util import Partial
from jaxtyping import Array, Float

from natmix.array_types import Count
from natmix.kernels import native
from natmix.kernels.batching import batch_max
from natmix.kernels.blocks import map_blocks
from natmix.kernels.coordinates import (
    Coordinates,
    barrier,
    choose_coordinates,
    circular_pairs,
    natural,
    quadratic_matrices,
    samples_per_block,
    stacked_whitened,
    with_one,
)
from natmix.kernels.float64 import in_double
from natmix.kernels.gaussian_batch import GaussianBatch, TriangularFactors, triangular
from natmix.kernels.linalg import einsum
from natmix.kernels.log_densities import native_applies
from natmix.kernels.plan import Plan, current
from natmix.kernels.relevant_blocks import (
    RelevantBlocks,
    slice_of,
    sparse_pays,
    summed_at_once,
    whitened_blocks,
)

Form = Literal["native", "sparse"] | Coordinates


def choose(plan: Plan, gaussians: GaussianBatch, samples: int) -> Form:
    """Native kernels if they apply, the sparse form if skipping pairs pays, otherwise all pairs."""
    if native_applies(plan, gaussians, samples):
        return "native"
    if sparse_pays(plan, gaussians, samples):
        return "sparse"
    return choose_coordinates(plan, gaussians)


def mixture_score(
    gaussians: GaussianBatch,
    log_components: Float[Array, "N K"],
    log_weights: Float[Array, " K"],
    x: Float[Array, "N D"],
    count: Count | None = None,
    form: Form | None = None,
) -> Float[Array, "N D"]:
    """Grad log q(x), given the log densities of the components."""
    plan = current()
    form = form or choose(plan, gaussians, x.shape[0])
    if form == "native":
        m, _, W = triangular(gaussians)
        return native.score(x, m, W, log_components, log_weights, count)
    if form == "sparse" or not plan.on_cpu or plan.mesh is not None:
        r = responsibilities(log_components, log_weights)
        return weighted_score(gaussians, r, x, count, form)
    # On a CPU it takes longer to write N x K responsibilities to memory than to compute them.
    block = Partial(_score_of_densities, _BLOCKS[form], gaussians, log_weights)
    rows = samples_per_block(form, gaussians, x.shape[0], count)
    return map_blocks(block, (log_components, x), rows, count)


def weighted_score(
    gaussians: GaussianBatch,
    r: Float[Array, "N K"],
    x: Float[Array, "N D"],
    count: Count | None = None,
    form: Literal["sparse"] | Coordinates | None = None,
) -> Float[Array, "N D"]:
    """-sum_k r S^-1 (x - m), given responsibilities r that sum to one."""
    chosen = form or choose(current().without_native(), gaussians, x.shape[0])
    if chosen == "sparse":
        return -_sparse_sums(triangular(gaussians), r, x, count)
    rows = samples_per_block(chosen, gaussians, x.shape[0], count)
    return map_blocks(Partial(_BLOCKS[chosen], gaussians), (r, x), rows, count)


def responsibilities(
    log_components: Float[Array, "N K"], log_weights: Float[Array, " K"]
) -> Float[Array, "N K"]:
    """q(o|x)."""
    joint = log_components + log_weights
    return jnp.exp(joint - jax.nn.logsumexp(joint, axis=1)[:, None])


def _score_of_densities(
    score: Callable[[GaussianBatch, Array, Array], Array],
    gaussians: GaussianBatch,
    log_weights: Float[Array, " K"],
    log_components: Float[Array, "B K"],
    x: Float[Array, "B D"],
) -> Float[Array, "B D"]:
    return score(gaussians, responsibilities(log_components, log_weights), x)


# All pairs, for one block of samples ------------------------------------------------------------


def _whitened(
    gaussians: GaussianBatch, r: Float[Array, "B K"], x: Float[Array, "B D"]
) -> Float[Array, "B D"]:
    return -gaussians.precision_weighted_sum(gaussians.whiten(x), r)


def _stacked(gaussians: GaussianBatch, r: Float[Array, "B K"], x: Float[Array, "B D"]) -> Float[Array, "B D"]:
    m, _, W = triangular(gaussians)
    return -einsum("bki,kij->bj", stacked_whitened(x, m, W) * r[:, :, None], W)


def _quadratic(
    gaussians: GaussianBatch, r: Float[Array, "B K"], x: Float[Array, "B D"]
) -> Float[Array, "B D"]:
    m, _, W = triangular(gaussians)
    return _quadratic_in_double(x, r, m, W)


def _circular(
    gaussians: GaussianBatch, r: Float[Array, "B K"], x: Float[Array, "B D"]
) -> Float[Array, "B D"]:
    m, _, W = triangular(gaussians)
    return _circular_in_double(x, r, m, W, *circular_pairs(gaussians.dim))


_BLOCKS: dict[str, Callable[[GaussianBatch, Array, Array], Array]] = {
    "whitened": _whitened,
    "stacked": _stacked,
    "quadratic": _quadratic,
    "circular": _circular,
}


@in_double
def _quadratic_in_double(x: Array, r: Array, mean: Array, W: Array) -> Array:
    """sum_k r (P m - P x)."""
    P, Pm = natural(mean, W)
    K, D = Pm.shape
    mean_precision = einsum("nk,kf->nf", r, P.reshape(K, D * D)).reshape(-1, D, D)
    return einsum("nk,ki->ni", r, Pm) - einsum("nij,nj->ni", mean_precision, x)


@in_double
def _circular_in_double(x: Array, r: Array, mean: Array, W: Array, *pairs: Array) -> Array:
    """sum_k r (P m - P x), the gradient 2 Q z."""
    P, Pm = natural(mean, W)
    rows, cols, places = pairs
    D = x.shape[1]
    Q = quadratic_matrices(P, Pm, jnp.zeros_like(Pm[:, 0]))[:, rows, cols]
    sums = einsum("kf,nk->fn", Q, r)
    places = places.reshape(D, D + 1)
    total = sum(sums[places[:, j]] * z for j, z in enumerate(with_one(x)))
    return 2 * barrier(with_layout_constraint(total, Layout((0, 1)))).T


# Without negligible pairs ------------------------------------------------------------------------


def _sparse_sums(
    factors: TriangularFactors, r: Float[Array, "N K"], x: Float[Array, "N D"], count: Count | None
) -> Float[Array, "N D"]:
    """sum_k r L^-T y; the sums of r over the components are one."""
    blocks = RelevantBlocks.of(r, 1.0, count)
    total = jnp.zeros_like(x)
    if summed_at_once(factors) >= factors.mean.shape[0]:
        return _add_pulled(x, total, factors, blocks)
    present = blocks.counts > 0
    front = jnp.argsort(~present, stable=True)

    def add(i: Count, total: Array) -> Array:
        rows = jax.lax.dynamic_slice_in_dim(front, i, 1)
        return _add_pulled(x, total, *jax.tree.map(lambda a: a[rows], (factors, blocks)))

    return jax.lax.fori_loop(0, batch_max(jnp.sum(present, dtype=jnp.int32)), add, total)


def _add_pulled(
    x: Float[Array, "N D"], total: Float[Array, "N D"], factors: TriangularFactors, blocks: RelevantBlocks
) -> Float[Array, "N D"]:
    def step(total: Array, first: Array, r: Array) -> Array:
        y = whitened_blocks(factors, x, first, r != 0)
        pulled = einsum("kci,kij->kcj", y * r[:, :, None], factors.inverse_tril)
        size = r.shape[1]
        if first.shape[0] > 1:
            return total.at[first[:, None] + jnp.arange(size)].add(pulled)
        # One component's block is one slice; on a CPU a scatter would write row by row.
        here = slice_of(total, first[0], size) + pulled[0]
        return jax.lax.dynamic_update_slice_in_dim(total, here, first[0], 0)

    return blocks.fold(step, total)
