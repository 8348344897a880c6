"""Module 1, SampleSelector: draws new samples, reuses old ones, and computes their background density."""

from natmix.modules.sample_selectors.base import AbstractSampleSelector
from natmix.modules.sample_selectors.components import FromComponents
from natmix.modules.sample_selectors.mixture import FromMixture

OPTIONS: tuple[type[AbstractSampleSelector], ...] = (FromComponents, FromMixture)

__all__ = ["OPTIONS", "AbstractSampleSelector", "FromComponents", "FromMixture"]
