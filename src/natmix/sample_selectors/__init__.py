"""Module 1, SampleSelector: draws new samples, reuses old ones, and knows their background density."""

from natmix.sample_selectors._base import AbstractSampleSelector
from natmix.sample_selectors.components import FromComponents
from natmix.sample_selectors.mixture import FromMixture

OPTIONS: tuple[type[AbstractSampleSelector], ...] = (FromComponents, FromMixture)

__all__ = ["OPTIONS", "AbstractSampleSelector", "FromComponents", "FromMixture"]
