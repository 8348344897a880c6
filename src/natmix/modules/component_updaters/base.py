"""The contract of a component updater."""

import abc
from typing import ClassVar, NamedTuple, Protocol, TypeAlias, TypeGuard

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Scalar
from natmix.gaussians import AbstractGaussians, FullGaussians
from natmix.kernels import native
from natmix.modules.hyperparameters import Option
from natmix.modules.records import NaturalGradient

MAX_ROUNDING = 0.03
"""How far rounding may move a component's samples, in its own standard deviations.

Beyond it a component's density no longer fits its samples; with estimates from few samples (P) such a
component can be taken for the best of all and draw all the weight.
"""


class Proposal(NamedTuple):
    """Updated Gaussians before it is known which of them are usable."""

    gaussians: AbstractGaussians
    ok: Bool[Array, " K"]


Updated: TypeAlias = tuple[AbstractGaussians, Bool[Array, " K"]]
"""New Gaussians and which updates succeeded; a failed one leaves its component alone."""


class Loops(Protocol):
    """An update of full covariances by native kernels; they change usable components alone."""

    def __call__(
        self,
        gaussians: FullGaussians,
        natural_gradient: NaturalGradient,
        stepsize: Float[Array, " K"],
        temperature: Scalar,
        usable: Bool[Array, " K"],
        /,
    ) -> Updated: ...


class AbstractComponentUpdater(Option):
    """Turns natural gradients and stepsizes into new Gaussians."""

    loops: ClassVar[Loops | None] = None
    """How to do without `propose`, if there is a way."""

    @abc.abstractmethod
    def propose(
        self,
        gaussians: AbstractGaussians,
        natural_gradient: NaturalGradient,
        stepsize: Float[Array, " K"],
        updates: Int[Array, " K"],
        temperature: Scalar,
    ) -> Proposal:
        """New Gaussians; a row that is not usable may hold anything."""

    def update(
        self,
        gaussians: AbstractGaussians,
        natural_gradient: NaturalGradient,
        stepsize: Float[Array, " K"],
        updates: Int[Array, " K"],
        temperature: Scalar,
        present: Bool[Array, " K"] | None = None,
    ) -> Updated:
        """New Gaussians and which updates succeeded; a failed one leaves its component alone.

        An update fails too when the new Gaussian would be too narrow for its float type, or where a component
        is not ``present``.
        """
        usable = natural_gradient.ok if present is None else natural_gradient.ok & present
        if self.loops is not None and self.has_loops(gaussians):
            return self.loops(gaussians, natural_gradient, stepsize, temperature, usable)
        new, ok = self.propose(gaussians, natural_gradient, stepsize, updates, temperature)
        exact = new.rounding() <= jnp.maximum(MAX_ROUNDING, gaussians.rounding())
        ok = ok & usable & new.finite() & exact
        return new.where(ok, gaussians), ok

    def has_loops(self, gaussians: AbstractGaussians) -> TypeGuard[FullGaussians]:
        """Whether `update` takes all components at once, at no cost for absent ones."""
        return self.loops is not None and isinstance(gaussians, FullGaussians) and native.used()
