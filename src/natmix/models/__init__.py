"""Models as targets: named variables with bounds, seen as one unconstrained vector."""

from natmix.models.base import AbstractModel
from natmix.models.detection import as_model
from natmix.models.numpyro import NumpyroModel
from natmix.models.pymc import PymcModel
from natmix.models.pytree import PytreeModel
from natmix.models.stan import StanModel

__all__ = ["AbstractModel", "NumpyroModel", "PymcModel", "PytreeModel", "StanModel", "as_model"]
