"""Module 2, ComponentStepsizeAdaptation: the stepsize (or KL bound) of each component's update."""

from natmix.modules.component_stepsizes.adaptive import AdaptiveComponentStepsize
from natmix.modules.component_stepsizes.base import AbstractComponentStepsize
from natmix.modules.component_stepsizes.decaying import DecayingComponentStepsize
from natmix.modules.component_stepsizes.fixed import FixedComponentStepsize

OPTIONS: tuple[type[AbstractComponentStepsize], ...] = (
    AdaptiveComponentStepsize,
    FixedComponentStepsize,
    DecayingComponentStepsize,
)

__all__ = [
    "OPTIONS",
    "AbstractComponentStepsize",
    "AdaptiveComponentStepsize",
    "DecayingComponentStepsize",
    "FixedComponentStepsize",
]
