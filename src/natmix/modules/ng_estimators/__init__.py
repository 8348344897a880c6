"""Module 3, NgEstimator: estimates every component's natural gradient from shared samples."""

from natmix.modules.ng_estimators.base import AbstractNgEstimator
from natmix.modules.ng_estimators.more import More
from natmix.modules.ng_estimators.stein import Stein

OPTIONS: tuple[type[AbstractNgEstimator], ...] = (Stein, More)

__all__ = ["OPTIONS", "AbstractNgEstimator", "More", "Stein"]
