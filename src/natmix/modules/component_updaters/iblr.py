"""Option Y: the improved Bayesian learning rule."""

from typing import ClassVar

import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Scalar
from natmix.gaussians import AbstractGaussians
from natmix.modules.component_updaters.base import (
    AbstractComponentUpdater,
    Proposal,
    Updated,
    update_in_blocks,
)
from natmix.modules.hyperparameters import flag
from natmix.modules.records import NaturalGradient


class Iblr(AbstractComponentUpdater):
    """S'^-1 = S^-1 + b G + (b^2/2) G S G and m' = m - b S g: Eq. 8 with -g for its r (docs/paper.md).

    Whitened: precision I + b A + (b^2/2) A^2, which is (I + (I + b A)^2) / 2 and so at least I/2;
    mean step -b a.
    """

    move_mean_at_first_update: bool = flag(
        False, "also move the mean at a component's very first update (the paper's tables did not)"
    )

    letter: ClassVar[str] = "Y"
    title: ClassVar[str] = "iBLR"

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
            Partial(_propose, self.move_mean_at_first_update),
            gaussians,
            natural_gradient,
            stepsize,
            updates,
            temperature,
            present,
        )


def _propose(
    move_mean_at_first_update: bool,
    gaussians: AbstractGaussians,
    natural_gradient: NaturalGradient,
    stepsize: Float[Array, " K"],
    updates: Int[Array, " K"],
    temperature: Scalar,
) -> Proposal:
    bA = gaussians.scaled(natural_gradient.curvature, stepsize)
    U = gaussians.factor(gaussians.plus_identity(bA + 0.5 * gaussians.square(bA)))
    moves = (updates > 0) | move_mean_at_first_update
    shift = jnp.where(moves[:, None], -stepsize[:, None] * natural_gradient.gradient, 0)
    return Proposal(gaussians.moved(U, shift), jnp.ones(stepsize.shape, bool))
