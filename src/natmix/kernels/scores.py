"""Scores grad log q(x) = -sum_k q(k|x) S^-1 (x - m) of a mixture of Gaussians at N samples.

Forms: those of `natmix.kernels.coordinates`, with N x K responsibilities in memory; fused, where each block
of samples computes its own, which is faster on a CPU than to write them to memory; sparse, without negligible
pairs of a sample and a component; and native, which skips such pairs too and computes responsibilities as it
goes.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.tree_util import Partial
from jaxtyping import Array, Float

from natmix.array_types import Count
from natmix.kernels import coordinates, native
from natmix.kernels.batching import batch_max
from natmix.kernels.blocks import map_blocks
from natmix.kernels.coordinates import (
    Coordinates,
    barrier,
    circular_pairs,
    natural,
    products_apply,
    quadratic_matrices,
    samples_per_block,
    stacked_whitened,
    with_one,
)
from natmix.kernels.float64 import in_double
from natmix.kernels.forms import GaussianRows, first_applicable
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

WeightedForm = Literal["sparse"] | Coordinates
Form = Literal["native", "fused_quadratic", "fused_whitened"] | WeightedForm

WEIGHTED_FORMS: GaussianRows[WeightedForm] = (("sparse", sparse_pays), *coordinates.FORMS)
"""Where the responsibilities are given."""
FORMS: GaussianRows[Form] = (
    ("native", native_applies),
    ("sparse", sparse_pays),
    ("fused_quadratic", lambda plan, g, n: plan.on_one_cpu and products_apply(plan, g, n)),
    ("fused_whitened", lambda plan, g, n: plan.on_one_cpu),
    *coordinates.FORMS,
)
FUSED: dict[str, Coordinates] = {"fused_quadratic": "quadratic", "fused_whitened": "whitened"}
"""The coordinates of the fused forms."""


def choose(plan: Plan, gaussians: GaussianBatch, samples: int) -> Form:
    """Native kernels if they apply, the sparse form if skipping pairs pays, otherwise all pairs."""
    return first_applicable(FORMS, plan, gaussians, samples)


def choose_weighted(plan: Plan, gaussians: GaussianBatch, samples: int) -> WeightedForm:
    """The same among the forms with given responsibilities."""
    return first_applicable(WEIGHTED_FORMS, plan, gaussians, samples)


def mixture_score(
    gaussians: GaussianBatch,
    log_components: Float[Array, "N K"],
    log_weights: Float[Array, " K"],
    x: Float[Array, "N D"],
    count: Count | None = None,
    form: Form | None = None,
) -> Float[Array, "N D"]:
    """Grad log q(x), given the log densities of the components."""
    form = form or choose(current(), gaussians, x.shape[0])
    if form == "native":
        m, _, W = triangular(gaussians)
        return native.score(x, m, W, log_components, log_weights, count)
    if form == "fused_quadratic" or form == "fused_whitened":
        block = Partial(_score_of_densities, _BLOCKS[FUSED[form]], gaussians, log_weights)
        rows = samples_per_block(FUSED[form], gaussians, x.shape[0], count)
        return map_blocks(block, (log_components, x), rows, count)
    return weighted_score(gaussians, responsibilities(log_components, log_weights), x, count, form)


def weighted_score(
    gaussians: GaussianBatch,
    r: Float[Array, "N K"],
    x: Float[Array, "N D"],
    count: Count | None = None,
    form: WeightedForm | None = None,
) -> Float[Array, "N D"]:
    """-sum_k r S^-1 (x - m), given responsibilities r that sum to one."""
    chosen = form or choose_weighted(current(), gaussians, x.shape[0])
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
