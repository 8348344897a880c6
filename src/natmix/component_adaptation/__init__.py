"""Module 7, ComponentAdaptation: decides when components come and go."""

from natmix.component_adaptation._base import AbstractComponentAdaptation
from natmix.component_adaptation.fixed import Fixed
from natmix.component_adaptation.vips import Vips

OPTIONS: tuple[type[AbstractComponentAdaptation], ...] = (Vips, Fixed)

__all__ = ["OPTIONS", "AbstractComponentAdaptation", "Fixed", "Vips"]
