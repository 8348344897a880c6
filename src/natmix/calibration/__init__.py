"""Simulation-based calibration: whether fits of a model can be right at all."""

from natmix.calibration.simulation_check import ParameterCheck, SimulationCheck, simulation_check

__all__ = ["ParameterCheck", "SimulationCheck", "simulation_check"]
