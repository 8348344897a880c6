"""Module 5, WeightStepsizeAdaptation: the stepsize (or KL bound) of the weight update."""

from natmix.modules.weight_stepsizes.adaptive import Adaptive
from natmix.modules.weight_stepsizes.base import AbstractWeightStepsize
from natmix.modules.weight_stepsizes.decaying import Decaying
from natmix.modules.weight_stepsizes.fixed import Fixed

OPTIONS: tuple[type[AbstractWeightStepsize], ...] = (Adaptive, Fixed, Decaying)

__all__ = ["OPTIONS", "AbstractWeightStepsize", "Adaptive", "Decaying", "Fixed"]
