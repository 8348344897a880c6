"""Option D: stepsizes that decay with the updates a component received."""

from typing import ClassVar

from jaxtyping import Array, Float, Int

from natmix.array_types import RealLike
from natmix.mixture import Mixture
from natmix.modules.component_stepsizes.base import AbstractComponentStepsize, Rewards
from natmix.modules.hyperparameters import real


class DecayingComponentStepsize(AbstractComponentStepsize):
    """b = stepsize / (1 + n^exponent), n the updates the component received so far."""

    stepsize: RealLike = real(0.1, "initial stepsize, or KL bound with T", low=0)
    exponent: RealLike = real(0.55, "annealing exponent", low=0)

    letter: ClassVar[str] = "D"
    title: ClassVar[str] = "Decaying"

    def init(self, mixture: Mixture) -> None:
        return None

    def update(
        self, state: None, rewards: Rewards, updates: Int[Array, " K"]
    ) -> tuple[None, Float[Array, " K"]]:
        n = updates.astype(rewards.last.dtype)
        return None, self.stepsize / (1 + n**self.exponent)
