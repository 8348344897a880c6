"""Models as targets: named variables with bounds, seen as one unconstrained vector."""

from natmix.models.base import AbstractModel, Points, PriorRegion
from natmix.models.front_ends import FRONT_ENDS, as_model, front_ends, register, unregister
from natmix.models.given import Given
from natmix.models.numpyro import NumpyroModel
from natmix.models.pymc import PymcModel
from natmix.models.pytree import PytreeModel
from natmix.models.stan import StanModel

__all__ = [
    "FRONT_ENDS",
    "AbstractModel",
    "Given",
    "NumpyroModel",
    "Points",
    "PriorRegion",
    "PymcModel",
    "PytreeModel",
    "StanModel",
    "as_model",
    "front_ends",
    "register",
    "unregister",
]
