"""Sums over the blocks of samples relevant to a component: the sparse forms of scores and Stein's sums.

In many dimensions most samples have a negligible density under most components, and products with D x D
matrices are expensive. A pair of a sample and a component is negligible at working precision, and skipped,
if its weight is at most `NEGLIGIBLE` times the machine epsilon times the largest weight. The loops here take
time in proportion to the relevant blocks; if all are relevant the work is that of the dense sums.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count, PyTree
from natmix.kernels.batching import batch_max
from natmix.kernels.blocks import components_at_once
from natmix.kernels.coordinates import products_apply
from natmix.kernels.gaussian_batch import GaussianBatch, TriangularFactors
from natmix.kernels.linalg import einsum
from natmix.kernels.plan import Plan

NEGLIGIBLE = 1e-5

_BLOCK = 128
"""Samples in a block, which is relevant or not as a whole: a component's samples are mostly consecutive."""

_FEW_COMPONENTS = 8
_NOT_FEW_DIMENSIONS = 16
"""On a CPU, sparse sums are faster with at most so many components in at least so many dimensions."""

_ACCELERATOR_PAIRS = 2**34
"""Multiplications of the dense sum up to which an accelerator does it faster than the sparse one."""


def sparse_pays(plan: Plan, gaussians: GaussianBatch, samples: int) -> bool:
    """Whether skipping negligible pairs pays: if products with D x D matrices are most of the work."""
    K, D = gaussians.capacity, gaussians.dim
    if gaussians.factors is None or K == 1 or plan.mesh is not None:
        return False
    products = products_apply(plan, gaussians)
    if plan.on_cpu:
        return not products or (K <= _FEW_COMPONENTS and D >= _NOT_FEW_DIMENSIONS)
    return not products and K * samples * D * D > _ACCELERATOR_PAIRS


class RelevantBlocks(eqx.Module):
    """The blocks of samples that are relevant to each component."""

    weights: Float[Array, "K N"]
    """Zero for negligible pairs."""
    ranks: Int[Array, "K B"]
    """How many blocks up to this one are relevant."""

    @classmethod
    def of(
        cls, weights: Float[Array, "N K"], largest: Float[Array, " K"] | float, count: Count | None
    ) -> "RelevantBlocks":
        """The blocks with a weight that is NaN or not negligible beside ``largest``."""
        limit = NEGLIGIBLE * jnp.finfo(weights.dtype).eps * jnp.asarray(largest, weights.dtype)
        matters = ~(jnp.abs(weights) <= limit)
        if count is not None:
            matters = matters & (jnp.arange(weights.shape[0]) < count)[:, None]
        weights = jnp.where(matters, weights, 0)
        padded = jnp.pad(matters, ((0, -weights.shape[0] % _BLOCK), (0, 0)))
        blocks = jnp.any(padded.reshape(-1, _BLOCK, padded.shape[1]), axis=1)
        return cls(weights.T, jnp.cumsum(blocks.T, axis=1, dtype=jnp.int32))

    @property
    def counts(self) -> Int[Array, " K"]:
        """How many blocks are relevant to each component."""
        return self.ranks[:, -1]

    def block(self, i: Count) -> tuple[Int[Array, " K"], Float[Array, "K C"]]:
        """The first sample of each component's block number i, and its weights; zeros if it has fewer blocks.

        The last block starts early instead of ending beyond the last sample.
        """
        N = self.weights.shape[1]
        size = min(_BLOCK, N)
        find = jax.vmap(lambda r: jnp.searchsorted(r, i + 1, method="scan_unrolled"))
        number = jnp.minimum(find(self.ranks), self.ranks.shape[1] - 1).astype(jnp.int32)
        first = jnp.minimum(number * size, N - size)
        samples = first[:, None] + jnp.arange(size, dtype=jnp.int32)
        real = (samples >= number[:, None] * size) & (i < self.counts[:, None])
        return first, jnp.where(real, jax.vmap(lambda w, f: slice_of(w, f, size))(self.weights, first), 0)

    def fold(self, step: Callable[[PyTree, Array, Array], PyTree], start: PyTree) -> PyTree:
        """``step(carry, first samples, weights)`` over all blocks."""
        trips = batch_max(jnp.max(self.counts))
        return jax.lax.fori_loop(0, trips, lambda i, carry: step(carry, *self.block(i)), start)


def summed_at_once(factors: TriangularFactors) -> int:
    """How many components are summed together."""
    K, D = factors.mean.shape
    return min(K, components_at_once(_BLOCK * D, 1))


def whitened_blocks(
    factors: TriangularFactors, x: Float[Array, "N D"], first: Int[Array, " K"], real: Bool[Array, "K C"]
) -> Float[Array, "K C D"]:
    """Y of each component's block, zero where a sample is not real."""
    d = blocks_of(x, first, real.shape[1]) - factors.mean[:, None]
    return einsum("kcj,kij->kci", jnp.where(real[:, :, None], d, 0), factors.inverse_tril)


def blocks_of(a: Float[Array, "N D"], first: Int[Array, " K"], size: int) -> Float[Array, "K C D"]:
    """``size`` samples of each component from its first one on."""
    if first.shape[0] == 1:
        return slice_of(a, first[0], size)[None]
    return a[first[:, None] + jnp.arange(size)]


def slice_of(a: Array, first: Count, size: int) -> Array:
    """``size`` entries from ``first`` on."""
    return jax.lax.dynamic_slice_in_dim(a, first, size)
