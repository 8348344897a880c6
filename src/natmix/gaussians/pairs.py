"""Sums over those pairs of a sample and a component that matter.

In many dimensions most samples lie where most components have no density to speak of. A pair whose weight is
`NEGLIGIBLE` roundings of the largest changes no digit of a sum, and products with D x D matrices are dear:
those pairs are left out. The loops here go over what remains and take as long as that asks for; if every
pair matters they do the same work as the dense sums.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count, PyTree
from natmix.kernels.batching import most
from natmix.kernels.blocks import map_components, rows_at_once
from natmix.kernels.linalg import einsum

if TYPE_CHECKING:
    from natmix.gaussians.full import FullGaussians

NEGLIGIBLE = 1e-5
_CPU_BLOCK = 128
_ACCELERATOR_BLOCK = 128
"""Samples in a block, the unit of what matters: samples of one component mostly lie side by side."""


class Pairs(eqx.Module):
    """The blocks of samples that matter to each component."""

    weights: Float[Array, "K N"]
    """Zero for pairs that do not matter."""
    ranks: Int[Array, "K B"]
    """How many blocks up to this one matter."""

    @classmethod
    def of(
        cls, weights: Float[Array, "N K"], largest: Float[Array, " K"] | float, count: Count | None
    ) -> "Pairs":
        """Those with more than a negligible share of ``largest``, and those that are not numbers."""
        limit = NEGLIGIBLE * jnp.finfo(weights.dtype).eps * jnp.asarray(largest, weights.dtype)
        matters = ~(jnp.abs(weights) <= limit)
        if count is not None:
            matters = matters & (jnp.arange(weights.shape[0]) < count)[:, None]
        weights = jnp.where(matters, weights, 0)
        size = _block_size()
        padded = jnp.pad(matters, ((0, -weights.shape[0] % size), (0, 0)))
        blocks = jnp.any(padded.reshape(-1, size, padded.shape[1]), axis=1)
        return cls(weights.T, jnp.cumsum(blocks.T, axis=1, dtype=jnp.int32))

    @property
    def counts(self) -> Int[Array, " K"]:
        """How many blocks matter to each component."""
        return self.ranks[:, -1]

    def block(self, i: Count) -> tuple[Int[Array, " K"], Float[Array, "K C"]]:
        """The first sample of each component's block number i, and weights; zero if it has fewer blocks.

        The last block begins earlier than it should rather than to end beyond the last sample.
        """
        N = self.weights.shape[1]
        size = min(_block_size(), N)
        find = jax.vmap(lambda r: jnp.searchsorted(r, i + 1, method="scan_unrolled"))
        number = jnp.minimum(find(self.ranks), self.ranks.shape[1] - 1).astype(jnp.int32)
        first = jnp.minimum(number * size, N - size)
        samples = first[:, None] + jnp.arange(size, dtype=jnp.int32)
        real = (samples >= number[:, None] * size) & (i < self.counts[:, None])
        return first, jnp.where(real, jax.vmap(lambda w, f: _slice(w, f, size))(self.weights, first), 0)

    def fold(self, step: Callable[[PyTree, Array, Array], PyTree], start: PyTree) -> PyTree:
        """``step(carry, first samples, weights)`` over all blocks."""
        trips = most(jnp.max(self.counts))
        return jax.lax.fori_loop(0, trips, lambda i, carry: step(carry, *self.block(i)), start)


def moments(
    gaussians: "FullGaussians",
    w: Float[Array, "N K"],
    x: Float[Array, "N D"],
    v: Float[Array, "N D"],
    count: Count | None,
) -> Float[Array, "K D D"]:
    """sum_n w y v^T with y = L^-1 (x - m)."""
    pairs = Pairs.of(w, jnp.max(jnp.abs(w), axis=0), count)
    rows = (gaussians, pairs)
    return map_components(Partial(_moments, x, v), rows, pairs.counts > 0, _at_once(gaussians))


def _moments(
    x: Float[Array, "N D"], v: Float[Array, "N D"], gaussians: "FullGaussians", pairs: Pairs
) -> Float[Array, "K D D"]:
    def step(moment: Array, first: Array, w: Array) -> Array:
        y = _whitened(gaussians, x, first, w != 0)
        return moment + einsum("kci,kcj->kij", y * w[:, :, None], _blocks_of(v, first, w.shape[1]))

    return pairs.fold(step, jnp.zeros_like(gaussians.scale_tril))


def pulled_sums(
    gaussians: "FullGaussians", r: Float[Array, "N K"], x: Float[Array, "N D"], count: Count | None
) -> Float[Array, "N D"]:
    """sum_k r L^-T y; the sums of r over the components are one."""
    pairs = Pairs.of(r, 1.0, count)
    total = jnp.zeros_like(x)
    if _at_once(gaussians) >= gaussians.capacity:
        return _add_pulled(x, total, gaussians, pairs)
    present = pairs.counts > 0
    front = jnp.argsort(~present, stable=True)

    def add(i: Count, total: Array) -> Array:
        rows = jax.lax.dynamic_slice_in_dim(front, i, 1)
        return _add_pulled(x, total, *jax.tree.map(lambda a: a[rows], (gaussians, pairs)))

    return jax.lax.fori_loop(0, most(jnp.sum(present, dtype=jnp.int32)), add, total)


def _add_pulled(
    x: Float[Array, "N D"], total: Float[Array, "N D"], gaussians: "FullGaussians", pairs: Pairs
) -> Float[Array, "N D"]:
    def step(total: Array, first: Array, r: Array) -> Array:
        y = _whitened(gaussians, x, first, r != 0)
        pulled = einsum("kci,kij->kcj", y * r[:, :, None], gaussians.inverse_tril)
        size = r.shape[1]
        if first.shape[0] > 1:
            return total.at[first[:, None] + jnp.arange(size)].add(pulled)
        # One component's block is one slice; a scatter visits every row by itself on a CPU.
        here = _slice(total, first[0], size) + pulled[0]
        return jax.lax.dynamic_update_slice_in_dim(total, here, first[0], 0)

    return pairs.fold(step, total)


def _whitened(
    gaussians: "FullGaussians", x: Float[Array, "N D"], first: Int[Array, " K"], real: Bool[Array, "K C"]
) -> Float[Array, "K C D"]:
    d = _blocks_of(x, first, real.shape[1]) - gaussians.mean[:, None]
    return einsum("kcj,kij->kci", jnp.where(real[:, :, None], d, 0), gaussians.inverse_tril)


def _blocks_of(a: Float[Array, "N D"], first: Int[Array, " K"], size: int) -> Float[Array, "K C D"]:
    if first.shape[0] == 1:
        return _slice(a, first[0], size)[None]
    return a[first[:, None] + jnp.arange(size)]


def _slice(a: Array, first: Count, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(a, first, size)


def _block_size() -> int:
    return _CPU_BLOCK if jax.default_backend() == "cpu" else _ACCELERATOR_BLOCK


def _at_once(gaussians: "FullGaussians") -> int:
    return min(gaussians.capacity, rows_at_once(_block_size() * gaussians.dim, 1))
