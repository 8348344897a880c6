"""Per-component state: a module wraps what it keeps for each component, and never resizes it.

Components live in the slots of arrays with a fixed capacity. When a component is added its slot is
reset to ``fresh`` everywhere; when the capacity changes every slot moves along. These functions do
that to any tree, so no module knows that components come and go.
"""

import abc
from collections.abc import Callable
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from natmix.array_types import Count, Flag, PyTree
from natmix.kernels import sharding
from natmix.kernels.slots import set_slot

T = TypeVar("T")
S = TypeVar("S")


class PerComponent(eqx.Module, Generic[T]):
    """A value for every component, with the value a new component starts from.

    Attributes:
        value: a tree whose leaves have K slots first.
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


class SampleStore(eqx.Module):
    """Samples kept from one iteration to the next: what `by_sample` gives has them first."""

    @abc.abstractmethod
    def by_sample(self) -> tuple[PyTree, ...]:
        """The arrays with samples first."""


def placed(tree: S) -> S:
    """On several devices: components and stored samples split, everything else everywhere."""

    def place(node: PyTree) -> PyTree:
        if isinstance(node, PerComponent):
            return PerComponent(sharding.split(node.value), sharding.everywhere(node.fresh))
        if isinstance(node, SampleStore):
            stored = sharding.split(node.by_sample())
            return eqx.tree_at(lambda s: s.by_sample(), sharding.everywhere(node), stored)
        return sharding.everywhere(node)

    if not sharding.divided():
        return tree
    return jax.tree.map(place, tree, is_leaf=lambda x: isinstance(x, (PerComponent, SampleStore)))


def reset_slot(tree: S, slot: Count, do: Flag) -> S:
    """Give slot ``slot`` of everything per component its fresh value, if ``do``."""
    return _map(lambda p: set_slot(p.value, slot, p.fresh, do), tree)


def take_slots(tree: S, order: Int[Array, " K2"]) -> S:
    """Slots in a new order; ``order`` may have another length, and -1 takes a fresh one."""

    def take(v: Array, f: Array) -> Array:
        keep = (order >= 0).reshape(-1, *[1] * (v.ndim - 1))
        return jnp.where(keep, v[jnp.maximum(order, 0)], f)

    return _map(lambda p: jax.tree.map(take, p.value, p.fresh), tree)


def _map(fn: Callable[[PerComponent], PyTree], tree: S) -> S:
    def is_per_component(x: PyTree) -> bool:
        return isinstance(x, PerComponent)

    return jax.tree.map(lambda x: x.set(fn(x)) if is_per_component(x) else x, tree, is_leaf=is_per_component)
