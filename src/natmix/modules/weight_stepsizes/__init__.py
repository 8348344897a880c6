"""Module 5, WeightStepsizeAdaptation: the stepsize (or KL bound) of the weight update."""

from natmix.modules.weight_stepsizes.adaptive import AdaptiveWeightStepsize
from natmix.modules.weight_stepsizes.base import AbstractWeightStepsize
from natmix.modules.weight_stepsizes.decaying import DecayingWeightStepsize
from natmix.modules.weight_stepsizes.fixed import FixedWeightStepsize

OPTIONS: tuple[type[AbstractWeightStepsize], ...] = (
    AdaptiveWeightStepsize,
    FixedWeightStepsize,
    DecayingWeightStepsize,
)

__all__ = [
    "OPTIONS",
    "AbstractWeightStepsize",
    "AdaptiveWeightStepsize",
    "DecayingWeightStepsize",
    "FixedWeightStepsize",
]
