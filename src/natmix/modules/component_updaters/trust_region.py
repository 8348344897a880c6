"""Option T: the longest natural-gradient step within a bound on the KL divergence."""

from typing import ClassVar

import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Scalar
from natmix.gaussians import AbstractGaussians
from natmix.kernels import trust_region
from natmix.kernels.plan import current
from natmix.modules.component_updaters.base import (
    MAX_ROUNDING,
    AbstractComponentUpdater,
    Proposal,
    Updated,
    update_in_blocks,
    usable_components,
)
from natmix.modules.records import NaturalGradient


class TrustRegionComponentUpdater(AbstractComponentUpdater):
    """The step of Eq. 4 with the largest b = 1/eta <= 1/T such that KL(new || old) <= stepsize.

    See `natmix.kernels.trust_region` for how it is found.
    """

    letter: ClassVar[str] = "T"
    title: ClassVar[str] = "Trust-Region"

    def update(
        self,
        gaussians: AbstractGaussians,
        natural_gradient: NaturalGradient,
        stepsize: Float[Array, " K"],
        updates: Int[Array, " K"],
        temperature: Scalar,
        present: Bool[Array, " K"] | None = None,
    ) -> Updated:
        form = trust_region.choose(current(), gaussians)
        if form == "native":
            usable = usable_components(natural_gradient, present)
            return _native(gaussians, natural_gradient, stepsize, temperature, usable)
        propose = Partial(_propose, form)
        return update_in_blocks(propose, gaussians, natural_gradient, stepsize, updates, temperature, present)


def _native(
    gaussians: AbstractGaussians,
    natural_gradient: NaturalGradient,
    stepsize: Float[Array, " K"],
    temperature: Scalar,
    usable: Bool[Array, " K"],
) -> Proposal:
    A, a = natural_gradient.curvature, natural_gradient.gradient
    new, ok = trust_region.native_step(gaussians, A, a, stepsize, usable, temperature, MAX_ROUNDING)
    return Proposal(gaussians.with_factors(new), ok)


def _propose(
    form: trust_region.Form,
    gaussians: AbstractGaussians,
    natural_gradient: NaturalGradient,
    stepsize: Float[Array, " K"],
    updates: Int[Array, " K"],
    temperature: Scalar,
) -> Proposal:
    usable = natural_gradient.ok
    if form == "native" or form == "native_shards":
        return _native(gaussians, natural_gradient, stepsize, temperature, usable)
    curvature = natural_gradient.curvature
    A = jnp.where(usable.reshape(-1, *[1] * (curvature.ndim - 1)), curvature, 0)
    a = jnp.where(usable[:, None], natural_gradient.gradient, 0)
    step = trust_region.whitened_step(form, gaussians, A, a, stepsize, temperature)
    return Proposal(gaussians.moved(step.factor, step.shift), step.ok)
