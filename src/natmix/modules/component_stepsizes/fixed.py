"""Option F: the same stepsize throughout."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natmix.array_types import RealLike
from natmix.mixture import Mixture
from natmix.modules.component_stepsizes.base import AbstractComponentStepsize, Rewards
from natmix.modules.hyperparameters import real


class FixedComponentStepsize(AbstractComponentStepsize):
    """b = stepsize."""

    stepsize: RealLike = real(0.1, "stepsize, or KL bound with T", low=0)

    letter: ClassVar[str] = "F"
    title: ClassVar[str] = "Fixed"

    def init(self, mixture: Mixture) -> None:
        return None

    def update(
        self, state: None, rewards: Rewards, updates: Int[Array, " K"]
    ) -> tuple[None, Float[Array, " K"]]:
        return None, jnp.broadcast_to(jnp.asarray(self.stepsize, rewards.last.dtype), updates.shape)
