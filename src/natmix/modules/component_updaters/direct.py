"""Option I: the plain natural-gradient step."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Scalar
from natmix.gaussians import AbstractGaussians
from natmix.modules.component_updaters.base import (
    AbstractComponentUpdater,
    Proposal,
    Updated,
    update_in_blocks,
)
from natmix.modules.records import NaturalGradient


class DirectComponentUpdater(AbstractComponentUpdater):
    """S'^-1 = S^-1 + b G and S'^-1 m' = S^-1 m + b (G m - g), Eq. 4.

    Whitened: precision I + b A, mean step -(I + b A)^-1 b a. The update fails where that
    precision is not positive definite.
    """

    letter: ClassVar[str] = "I"
    title: ClassVar[str] = "Direct"

    def update(
        self,
        gaussians: AbstractGaussians,
        natural_gradient: NaturalGradient,
        stepsize: Float[Array, " K"],
        updates: Int[Array, " K"],
        temperature: Scalar,
        present: Bool[Array, " K"] | None = None,
    ) -> Updated:
        return update_in_blocks(
            _propose, gaussians, natural_gradient, stepsize, updates, temperature, present
        )


def _propose(
    gaussians: AbstractGaussians,
    natural_gradient: NaturalGradient,
    stepsize: Float[Array, " K"],
    updates: Int[Array, " K"],
    temperature: Scalar,
) -> Proposal:
    A = gaussians.scaled(natural_gradient.curvature, stepsize)
    U = gaussians.factor(gaussians.plus_identity(A))
    shift = -gaussians.solve(U, stepsize[:, None] * natural_gradient.gradient)
    return Proposal(gaussians.moved(U, shift), jnp.ones(stepsize.shape, bool))
