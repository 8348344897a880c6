"""Per-component state: modules wrap what they keep for each component, and never resize it themselves.

Components live in the slots of arrays with a fixed capacity. When a component is added its slot is
reset to ``fresh`` everywhere; when the capacity changes all slots are moved. The functions here do
this for any tree, so that no module has to handle added and deleted components.
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
    """Samples that are kept from one iteration to the next."""

    @abc.abstractmethod
    def by_sample(self) -> tuple[PyTree, ...]:
        """The arrays whose first axis is that of the samples."""


def placed(tree: S) -> S:
    """On several devices: components and stored samples are split, everything else is replicated."""

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
    """The slots in a new order, which may have another length; -1 stands for a fresh slot."""

    def take(v: Array, f: Array) -> Array:
        keep = (order >= 0).reshape(-1, *[1] * (v.ndim - 1))
        return jnp.where(keep, v[jnp.maximum(order, 0)], f)

    return _map(lambda p: jax.tree.map(take, p.value, p.fresh), tree)


def _map(fn: Callable[[PerComponent], PyTree], tree: S) -> S:
    def is_per_component(x: PyTree) -> bool:
        return isinstance(x, PerComponent)

    return jax.tree.map(lambda x: x.set(fn(x)) if is_per_component(x) else x, tree, is_leaf=is_per_component)
