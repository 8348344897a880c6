"""Module 5, WeightStepsizeAdaptation: the stepsize (or KL bound) of the weight update."""

from natmix.weight_stepsizes._base import AbstractWeightStepsize
from natmix.weight_stepsizes.adaptive import Adaptive
from natmix.weight_stepsizes.decaying import Decaying
from natmix.weight_stepsizes.fixed import Fixed

OPTIONS: tuple[type[AbstractWeightStepsize], ...] = (Adaptive, Fixed, Decaying)

__all__ = ["OPTIONS", "AbstractWeightStepsize", "Adaptive", "Decaying", "Fixed"]
