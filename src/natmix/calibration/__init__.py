"""Simulation-based calibration: whether fits recover the parameters of simulated data."""

from natmix.calibration.simulation_check import ParameterCheck, SimulationCheck, simulation_check

__all__ = ["ParameterCheck", "SimulationCheck", "simulation_check"]
