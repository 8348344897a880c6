"""Option R: stepsizes that follow the improvement of each component's reward."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natmix.array_types import RealLike
from natmix.mixture import Mixture
from natmix.modules.component_stepsizes.base import AbstractComponentStepsize, Rewards
from natmix.modules.hyperparameters import real
from natmix.modules.improvement import adapted, check_limits
from natmix.modules.per_component import PerComponent


class StepsizeState(eqx.Module):
    """What is kept for each component."""

    stepsize: Float[Array, " *K"]
    previous: Float[Array, " *K"]


class AdaptiveComponentStepsize(AbstractComponentStepsize):
    """b <- min(increase * b, max) when the component's reward rose, else max(decrease * b, min).

    The initial value is kept until two rewards are recorded and may lie outside [min, max].
    """

    stepsize: RealLike = real(0.1, "initial stepsize, or KL bound with T", low=0)
    min_stepsize: RealLike = real(1e-3, "smallest adapted stepsize", low=0)
    max_stepsize: RealLike = real(1.0, "largest adapted stepsize", low=0)
    increase: RealLike = real(1.15, "factor after an improvement", low=1)
    decrease: RealLike = real(0.85, "factor otherwise, ties included", low=0, high=1)

    letter: ClassVar[str] = "R"
    title: ClassVar[str] = "Adaptive"

    def __check_init__(self) -> None:
        check_limits(self)

    def init(self, mixture: Mixture) -> PerComponent[StepsizeState]:
        dtype = mixture.dtype
        fresh = StepsizeState(jnp.asarray(self.stepsize, dtype), jnp.zeros((), dtype))
        return PerComponent.full(mixture.num_components, fresh)

    def update(
        self, state: PerComponent[StepsizeState], rewards: Rewards, updates: Int[Array, " K"]
    ) -> tuple[PerComponent[StepsizeState], Float[Array, " K"]]:
        old = state.value.stepsize
        new = adapted(self, old, rewards.last > state.value.previous)
        stepsize = jnp.where(rewards.records >= 2, new, old)
        return state.set(StepsizeState(stepsize, rewards.last)), stepsize
