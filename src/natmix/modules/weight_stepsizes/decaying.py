"""Option G: a stepsize that decays with the number of weight updates."""

from typing import ClassVar

from natmix.array_types import Count, RealLike, Scalar
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import real
from natmix.modules.weight_stepsizes.base import AbstractWeightStepsize


class DecayingWeightStepsize(AbstractWeightStepsize):
    """b = stepsize / (1 + n^exponent), n the number of weight updates so far."""

    stepsize: RealLike = real(1.0, "initial stepsize, or KL bound with O", low=0)
    exponent: RealLike = real(0.55, "annealing exponent", low=0)

    letter: ClassVar[str] = "G"
    title: ClassVar[str] = "Decaying"

    def init(self, mixture: Mixture) -> None:
        return None

    def update(self, state: None, objective: Scalar, updates: Count) -> tuple[None, Scalar]:
        n = updates.astype(objective.dtype)
        return None, self.stepsize / (1 + n**self.exponent)
