"""Module 4, NgBasedComponentUpdater: moves every component along its natural gradient."""

from natmix.modules.component_updaters.base import AbstractComponentUpdater
from natmix.modules.component_updaters.direct import DirectComponentUpdater
from natmix.modules.component_updaters.iblr import Iblr
from natmix.modules.component_updaters.trust_region import TrustRegionComponentUpdater

OPTIONS: tuple[type[AbstractComponentUpdater], ...] = (
    TrustRegionComponentUpdater,
    Iblr,
    DirectComponentUpdater,
)

__all__ = [
    "OPTIONS",
    "AbstractComponentUpdater",
    "DirectComponentUpdater",
    "Iblr",
    "TrustRegionComponentUpdater",
]
