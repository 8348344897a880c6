"""Trees of several runs as one, for `jax.vmap`."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natmix.array_types import PyTree
from natmix.kernels.compilation import quick_jit
from natmix.targets import AbstractTarget


class Stacked(eqx.Module):
    """Trees of several runs: arrays that differ are stacked, shared ones are kept once.

    Attributes:
        varying: arrays whose first axis is that of the runs; None where they are shared.
        common: everything else.
    """

    varying: PyTree
    common: PyTree

    @classmethod
    def build(cls, trees: Sequence[PyTree], share: bool = True) -> "Stacked":
        """From trees with the same structure, and arrays of the same shapes and types.

        Args:
            trees: one per run.
            share: keep arrays once that are equal in all of them; otherwise all arrays are stacked.
        """
        arrays, rest = zip(*(eqx.partition(t, eqx.is_array) for t in trees), strict=True)
        shared = jax.tree.map(lambda *a: a[0] if share and _same(a) else None, *arrays)
        varying = jax.tree.map(lambda *a: None if share and _same(a) else jnp.stack(a), *arrays)
        return cls(varying, eqx.combine(shared, rest[0]))

    def can_take(self, tree: PyTree) -> bool:
        """Whether `put` can replace a tree by this one: it agrees in all that is shared."""
        arrays, rest = eqx.partition(tree, eqx.is_array)
        shared, other = eqx.partition(self.common, eqx.is_array)
        if not eqx.tree_equal(rest, other):
            return False
        varying, mine, its = (jax.tree.leaves(t, is_leaf=_is_none) for t in (self.varying, shared, arrays))
        pairs = zip(varying, mine, its, strict=True)
        return all((v.shape[1:] == a.shape) if v is not None else _same((m, a)) for v, m, a in pairs)

    def put(self, place: int, tree: PyTree) -> "Stacked":
        """The same with another tree for the run in this place."""
        arrays = eqx.filter(tree, eqx.is_array)
        mine = jax.tree.map(lambda v, a: None if v is None else a, self.varying, arrays, is_leaf=_is_none)
        return Stacked(put_rows(self.varying, mine, jnp.asarray(place, jnp.int32)), self.common)


@quick_jit()
def put_rows(stacked: PyTree, rows: PyTree, place: Array) -> PyTree:
    """Stacked arrays with other ones in this place."""
    return jax.tree.map(lambda s, r: s.at[place].set(r), stacked, rows)


def obstacle(targets: Sequence[AbstractTarget]) -> str | None:
    """Why these targets cannot be evaluated together, in a few words; None if they can."""
    if not all(t.inside_jax for t in targets):
        return "a target outside JAX is evaluated for one run at a time"
    arrays, rest = zip(*(eqx.partition(t, eqx.is_array) for t in targets), strict=True)
    if any(not eqx.tree_equal(rest[0], r) for r in rest[1:]):
        return "their targets are different functions"
    first = jax.tree.leaves(arrays[0])
    for other in arrays[1:]:
        for a, b in zip(first, jax.tree.leaves(other), strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"their targets' data differ in shape ({a.shape} and {b.shape}) or type"
    return None


def _same(arrays: Sequence[Array]) -> bool:
    return all(a is arrays[0] or np.array_equal(a, arrays[0], equal_nan=True) for a in arrays[1:])


def _is_none(leaf: object) -> bool:
    return leaf is None
