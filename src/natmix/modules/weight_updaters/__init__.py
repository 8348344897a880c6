"""Module 6, WeightUpdater: moves the weights along their natural gradient."""

from natmix.modules.weight_updaters.base import AbstractWeightUpdater
from natmix.modules.weight_updaters.direct import DirectWeightUpdater
from natmix.modules.weight_updaters.trust_region import TrustRegionWeightUpdater

OPTIONS: tuple[type[AbstractWeightUpdater], ...] = (TrustRegionWeightUpdater, DirectWeightUpdater)

__all__ = ["OPTIONS", "AbstractWeightUpdater", "DirectWeightUpdater", "TrustRegionWeightUpdater"]
