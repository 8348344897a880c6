"""Parameters from the prior and data from the model, to fit again."""

from natmix.simulators._base import AbstractSimulator, SimulatedModel
from natmix.simulators._choose import as_simulator
from natmix.simulators.functions import FunctionSimulator
from natmix.simulators.numpyro import NumpyroSimulator
from natmix.simulators.pymc import PymcSimulator

__all__ = [
    "AbstractSimulator",
    "FunctionSimulator",
    "NumpyroSimulator",
    "PymcSimulator",
    "SimulatedModel",
    "as_simulator",
]
