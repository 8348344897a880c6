"""The Gaussian mixture: densities, samples, algebra, files and conversions."""

from natmix.mixture.mixture import Mixture

__all__ = ["Mixture"]
