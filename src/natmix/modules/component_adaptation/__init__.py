"""Module 7, ComponentAdaptation: decides when components come and go."""

from natmix.modules.component_adaptation.base import AbstractComponentAdaptation
from natmix.modules.component_adaptation.fixed import FixedComponents
from natmix.modules.component_adaptation.vips import Vips

OPTIONS: tuple[type[AbstractComponentAdaptation], ...] = (Vips, FixedComponents)

__all__ = ["OPTIONS", "AbstractComponentAdaptation", "FixedComponents", "Vips"]
