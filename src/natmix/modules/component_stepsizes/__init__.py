"""Module 2, ComponentStepsizeAdaptation: the stepsize (or KL bound) of each component's update."""

from natmix.modules.component_stepsizes.adaptive import Adaptive
from natmix.modules.component_stepsizes.base import AbstractComponentStepsize
from natmix.modules.component_stepsizes.decaying import Decaying
from natmix.modules.component_stepsizes.fixed import Fixed

OPTIONS: tuple[type[AbstractComponentStepsize], ...] = (Adaptive, Fixed, Decaying)

__all__ = ["OPTIONS", "AbstractComponentStepsize", "Adaptive", "Decaying", "Fixed"]
