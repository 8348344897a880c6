"""Module 3, NgEstimator: estimates every component's natural gradient from shared samples."""

from natmix.ng_estimators._base import AbstractNgEstimator
from natmix.ng_estimators.more import More
from natmix.ng_estimators.stein import Stein

OPTIONS: tuple[type[AbstractNgEstimator], ...] = (Stein, More)

__all__ = ["OPTIONS", "AbstractNgEstimator", "More", "Stein"]
