"""Where a fit starts: an initial region, or a mixture found from there by Pathfinder or tempering."""

from natmix.initialization.starts import STARTS, AbstractStart, Initialization, Setting

__all__ = ["STARTS", "AbstractStart", "Initialization", "Setting"]
