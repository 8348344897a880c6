"""Module 6, WeightUpdater: moves the weights along their natural gradient."""

from natmix.weight_updaters._base import AbstractWeightUpdater
from natmix.weight_updaters.direct import Direct
from natmix.weight_updaters.trust_region import TrustRegion

OPTIONS: tuple[type[AbstractWeightUpdater], ...] = (TrustRegion, Direct)

__all__ = ["OPTIONS", "AbstractWeightUpdater", "Direct", "TrustRegion"]
