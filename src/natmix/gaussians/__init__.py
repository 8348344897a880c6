"""Batches of Gaussians: one interface, one file per covariance representation."""

from natmix.gaussians.base import AbstractGaussians
from natmix.gaussians.diagonal import DiagonalGaussians
from natmix.gaussians.full import FullGaussians

__all__ = ["AbstractGaussians", "DiagonalGaussians", "FullGaussians"]
