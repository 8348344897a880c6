"""Where a fit starts: an initial region, or a mixture found from there by Pathfinder or tempering."""

from natmix.initialization.starts import STARTS, Initialization, initialise

__all__ = ["STARTS", "Initialization", "initialise"]
