"""The contract of a component updater."""

import abc
from typing import NamedTuple, Protocol, TypeAlias

import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Scalar
from natmix.gaussians import AbstractGaussians
from natmix.kernels.blocks import components_at_once, map_components
from natmix.modules.hyperparameters import Option
from natmix.modules.records import NaturalGradient

MAX_ROUNDING = 0.03
"""How far rounding may move a component's samples, in its own standard deviations.

Beyond it a component's density no longer matches its samples. With estimates from few samples (P) such a
component can seem the best of all and take all the weight.
"""

_UPDATED_ENTRIES = 2**12
"""Entries of the covariances that are updated together on a CPU; at least one component."""


class Proposal(NamedTuple):
    """Updated Gaussians, and for which of them the update itself succeeded; `_update` checks the rest."""

    gaussians: AbstractGaussians
    ok: Bool[Array, " K"]


Updated: TypeAlias = tuple[AbstractGaussians, Bool[Array, " K"]]
"""New Gaussians and which updates succeeded; a failed update leaves its component unchanged."""


class Propose(Protocol):
    """Proposes new Gaussians; those that are not usable may hold any numbers."""

    def __call__(
        self,
        gaussians: AbstractGaussians,
        natural_gradient: NaturalGradient,
        stepsize: Float[Array, " K"],
        updates: Int[Array, " K"],
        temperature: Scalar,
        /,
    ) -> Proposal: ...


class AbstractComponentUpdater(Option):
    """Turns natural gradients and stepsizes into new Gaussians."""

    @abc.abstractmethod
    def update(
        self,
        gaussians: AbstractGaussians,
        natural_gradient: NaturalGradient,
        stepsize: Float[Array, " K"],
        updates: Int[Array, " K"],
        temperature: Scalar,
        present: Bool[Array, " K"] | None = None,
    ) -> Updated:
        """New Gaussians and which updates succeeded; a failed update leaves its component unchanged.

        An update also fails when the new Gaussian would be too narrow for its floating-point type, and for a
        component that is not ``present``.
        """


def usable_components(
    natural_gradient: NaturalGradient, present: Bool[Array, " K"] | None
) -> Bool[Array, " K"]:
    """The components that are present and have a natural gradient."""
    return natural_gradient.ok if present is None else natural_gradient.ok & present


def update_in_blocks(
    propose: Propose,
    gaussians: AbstractGaussians,
    natural_gradient: NaturalGradient,
    stepsize: Float[Array, " K"],
    updates: Int[Array, " K"],
    temperature: Scalar,
    present: Bool[Array, " K"] | None,
) -> Updated:
    """Update some components at a time; those with an unusable proposal stay as they are."""
    block = Partial(_update, propose, temperature)
    arrays = (gaussians, natural_gradient, stepsize, updates)
    if present is None:
        return block(*arrays)
    entries = gaussians.dim**2
    at_once = components_at_once(8 * entries, on_cpu=max(1, _UPDATED_ENTRIES // entries))
    components, success = map_components(block, arrays, present, at_once)
    return components.where(present, gaussians), success


def _update(
    propose: Propose,
    temperature: Scalar,
    gaussians: AbstractGaussians,
    natural_gradient: NaturalGradient,
    stepsize: Float[Array, " B"],
    updates: Int[Array, " B"],
) -> Updated:
    new, ok = propose(gaussians, natural_gradient, stepsize, updates, temperature)
    exact = new.rounding() <= jnp.maximum(MAX_ROUNDING, gaussians.rounding())
    ok = ok & natural_gradient.ok & new.finite() & exact
    return new.where(ok, gaussians), ok
