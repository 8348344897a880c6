"""Parameters from the prior and data from the model, to fit again."""

from natmix.calibration.simulators.base import AbstractSimulator, SimulatedModel
from natmix.calibration.simulators.detection import as_simulator
from natmix.calibration.simulators.functions import FunctionSimulator
from natmix.calibration.simulators.numpyro import NumpyroSimulator
from natmix.calibration.simulators.pymc import PymcSimulator

__all__ = [
    "AbstractSimulator",
    "FunctionSimulator",
    "NumpyroSimulator",
    "PymcSimulator",
    "SimulatedModel",
    "as_simulator",
]
