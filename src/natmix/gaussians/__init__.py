"""Batches of Gaussians: one interface, one file per covariance family, found by name."""

from natmix.gaussians.base import AbstractGaussians
from natmix.gaussians.diagonal import DiagonalGaussians
from natmix.gaussians.families import FAMILIES, family_named, register
from natmix.gaussians.full import FullGaussians
from natmix.kernels.gaussian_batch import Curvature

__all__ = [
    "FAMILIES",
    "AbstractGaussians",
    "Curvature",
    "DiagonalGaussians",
    "FullGaussians",
    "family_named",
    "register",
]
