"""Module 4, NgBasedComponentUpdater: moves every component along its natural gradient."""

from natmix.modules.component_updaters.base import AbstractComponentUpdater
from natmix.modules.component_updaters.direct import Direct
from natmix.modules.component_updaters.iblr import Iblr
from natmix.modules.component_updaters.trust_region import TrustRegion

OPTIONS: tuple[type[AbstractComponentUpdater], ...] = (TrustRegion, Iblr, Direct)

__all__ = ["OPTIONS", "AbstractComponentUpdater", "Direct", "Iblr", "TrustRegion"]
