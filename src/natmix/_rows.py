"""Per-component state: a module wraps what it keeps for each component, and never resizes it.

Components live in the rows of arrays with a fixed capacity. When a component is added its row is
reset to ``fresh`` everywhere; when the capacity changes every row moves along. These functions do
that to any tree, so no module knows that components come and go.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from natmix._types import Count, Flag, PyTree

T = TypeVar("T")
S = TypeVar("S")


class PerComponent(eqx.Module, Generic[T]):
    """A value for every component, with the value a new component starts from.

    Attributes:
        value: a tree whose leaves have K rows.
        fresh: the same tree for one component, without the leading axis.
    """

    value: T
    fresh: T

    @classmethod
    def full(cls, capacity: int, fresh: T) -> "PerComponent[T]":
        """Every component starts from ``fresh``."""
        fresh = jax.tree.map(jnp.asarray, fresh)
        value = jax.tree.map(lambda f: jnp.broadcast_to(f, (capacity, *f.shape)), fresh)
        return cls(value, fresh)

    def set(self, value: T) -> "PerComponent[T]":
        """The same with other values."""
        return PerComponent(value, self.fresh)


def reset_row(tree: S, row: Count, do: Flag) -> S:
    """Give row ``row`` of everything per component its fresh value, if ``do``."""

    def reset(v: Array, f: Array) -> Array:
        return v.at[row].set(jnp.where(do, f, v[row]))

    return _map(lambda p: jax.tree.map(reset, p.value, p.fresh), tree)


def take_rows(tree: S, order: Int[Array, " K2"]) -> S:
    """Rows in a new order; ``order`` may have another length, and -1 takes a fresh row."""

    def take(v: Array, f: Array) -> Array:
        keep = (order >= 0).reshape(-1, *[1] * (v.ndim - 1))
        return jnp.where(keep, v[jnp.maximum(order, 0)], f)

    return _map(lambda p: jax.tree.map(take, p.value, p.fresh), tree)


def _map(fn: Callable[[PerComponent], PyTree], tree: S) -> S:
    def is_rows(x: PyTree) -> bool:
        return isinstance(x, PerComponent)

    return jax.tree.map(lambda x: x.set(fn(x)) if is_rows(x) else x, tree, is_leaf=is_rows)
