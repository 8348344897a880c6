"""Parameters from the prior and data from the model, to fit again."""

from natmix.calibration.simulators.base import AbstractSimulator, Request, Simulated, SimulatedModel
from natmix.calibration.simulators.detection import SIMULATORS, as_simulator, register
from natmix.calibration.simulators.functions import FunctionSimulator
from natmix.calibration.simulators.numpyro import NumpyroSimulator
from natmix.calibration.simulators.pymc import PymcSimulator

__all__ = [
    "SIMULATORS",
    "AbstractSimulator",
    "FunctionSimulator",
    "NumpyroSimulator",
    "PymcSimulator",
    "Request",
    "Simulated",
    "SimulatedModel",
    "as_simulator",
    "register",
]
