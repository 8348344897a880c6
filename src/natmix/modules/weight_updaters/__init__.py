"""Module 6, WeightUpdater: moves the weights along their natural gradient."""

from natmix.modules.weight_updaters.base import AbstractWeightUpdater
from natmix.modules.weight_updaters.direct import Direct
from natmix.modules.weight_updaters.trust_region import TrustRegion

OPTIONS: tuple[type[AbstractWeightUpdater], ...] = (TrustRegion, Direct)

__all__ = ["OPTIONS", "AbstractWeightUpdater", "Direct", "TrustRegion"]
