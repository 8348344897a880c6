"""Sums over those pairs of a sample and a component that matter.

In many dimensions most samples lie where most components have no density to speak of. A pair whose weight is
`_NEGLIGIBLE` roundings of the largest changes no digit of a sum, and products with D x D matrices are dear:
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

from natmix._blocks import map_components, rows_at_once
from natmix._linalg import einsum
from natmix._lockstep import most
from natmix._types import Count, PyTree

if TYPE_CHECKING:
    from natmix.gaussians.full import FullGaussians

_NEGLIGIBLE = 1e-5
_CHUNK = 128
"""Samples of a component handled at once."""


class Pairs(eqx.Module):
    """The samples that matter to each component."""

    weights: Float[Array, "K N"]
    ranks: Int[Array, "K N"]
    """How many samples up to this one matter."""

    @classmethod
    def of(
        cls, weights: Float[Array, "N K"], largest: Float[Array, " K"] | float, count: Count | None
    ) -> "Pairs":
        """Those with more than a negligible share of ``largest``, and those that are not numbers."""
        limit = _NEGLIGIBLE * jnp.finfo(weights.dtype).eps * jnp.asarray(largest, weights.dtype)
        matters = ~(jnp.abs(weights) <= limit)
        if count is not None:
            matters = matters & (jnp.arange(weights.shape[0]) < count)[:, None]
        return cls(weights.T, jnp.cumsum(matters.T, axis=1, dtype=jnp.int32))

    @property
    def counts(self) -> Int[Array, " K"]:
        """How many samples matter to each component."""
        return self.ranks[:, -1]

    def chunk(self, i: Count) -> tuple[Int[Array, "K C"], Float[Array, "K C"]]:
        """Samples i C to (i + 1) C - 1 of those that matter, and their weights; zero beyond the last."""
        wanted = i * _CHUNK + jnp.arange(_CHUNK, dtype=jnp.int32)
        find = jax.vmap(lambda r: jnp.searchsorted(r, wanted + 1, method="scan_unrolled"))
        real = wanted < self.counts[:, None]
        samples = jnp.where(real, find(self.ranks), 0)
        return samples, jnp.where(real, jnp.take_along_axis(self.weights, samples, axis=1), 0)

    def fold(self, step: Callable[[PyTree, Array, Array], PyTree], start: PyTree) -> PyTree:
        """``step(carry, samples, weights)`` over all chunks."""
        trips = (most(jnp.max(self.counts)) + _CHUNK - 1) // _CHUNK
        return jax.lax.fori_loop(0, trips, lambda i, carry: step(carry, *self.chunk(i)), start)


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
    def step(moment: Array, samples: Array, w: Array) -> Array:
        y = _whitened(gaussians, x, samples, w != 0)
        return moment + einsum("kci,kcj->kij", y * w[:, :, None], v[samples])

    return pairs.fold(step, jnp.zeros_like(gaussians.scale_tril))


def pulled_sums(
    gaussians: "FullGaussians", r: Float[Array, "N K"], x: Float[Array, "N D"], count: Count | None
) -> Float[Array, "N D"]:
    """sum_k r L^-T y; the sums of r over the components are one."""
    pairs = Pairs.of(r, 1.0, count)
    at_once = _at_once(gaussians)
    total = jnp.zeros_like(x)
    if at_once >= gaussians.capacity:
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
    def step(total: Array, samples: Array, r: Array) -> Array:
        y = _whitened(gaussians, x, samples, r != 0)
        pulled = einsum("kci,kij->kcj", y * r[:, :, None], gaussians.inverse_tril)
        return total.at[samples].add(pulled)

    return pairs.fold(step, total)


def _whitened(
    gaussians: "FullGaussians", x: Float[Array, "N D"], samples: Int[Array, "K C"], real: Bool[Array, "K C"]
) -> Float[Array, "K C D"]:
    d = jnp.where(real[:, :, None], x[samples] - gaussians.mean[:, None], 0)
    return einsum("kcj,kij->kci", d, gaussians.inverse_tril)


def _at_once(gaussians: "FullGaussians") -> int:
    return min(gaussians.capacity, rows_at_once(_CHUNK * gaussians.dim, 1))
