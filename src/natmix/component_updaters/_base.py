"""The contract of a component updater."""

import abc
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix._hyper import Option
from natmix._records import NaturalGradient
from natmix._types import Scalar
from natmix.gaussians import AbstractGaussians

MAX_ROUNDING = 0.03
"""How far rounding may move a component's samples, in its own standard deviations.

Beyond it a component's density no longer fits its samples; with estimates from few samples (P) such a
component can be taken for the best of all and draw all the weight.
"""


class Proposal(NamedTuple):
    """Updated Gaussians before it is known which of them are usable."""

    gaussians: AbstractGaussians
    ok: Bool[Array, " K"]


class AbstractComponentUpdater(Option):
    """Turns natural gradients and stepsizes into new Gaussians."""

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
    ) -> tuple[AbstractGaussians, Bool[Array, " K"]]:
        """New Gaussians and which updates succeeded; a failed one leaves its component alone.

        An update fails too when the new Gaussian would be too narrow for its float type.
        """
        new, ok = self.propose(gaussians, natural_gradient, stepsize, updates, temperature)
        exact = new.rounding() <= jnp.maximum(MAX_ROUNDING, gaussians.rounding())
        ok = ok & natural_gradient.ok & new.finite() & exact
        return new.where(ok, gaussians), ok
