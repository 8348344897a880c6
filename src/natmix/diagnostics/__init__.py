"""Whether to trust a fit: Pareto's k-hat, effective samples, evidence, modes, and a verdict in words."""

from natmix.diagnostics._agreement import Agreement, Missing, agreement
from natmix.diagnostics._diagnosis import HIDDEN_SHARE, Diagnosis, diagnose
from natmix.diagnostics._explore import Exploration, explore
from natmix.diagnostics._missed import Hunt, MissedMode, hunt
from natmix.diagnostics._modes import Mode, group, modes
from natmix.diagnostics._pareto import Smoothed, pareto_smooth, reliable_below
from natmix.diagnostics._simulation import ParameterCheck, SimulationCheck, simulation_check

__all__ = [
    "HIDDEN_SHARE",
    "Agreement",
    "Diagnosis",
    "Exploration",
    "Hunt",
    "MissedMode",
    "Missing",
    "Mode",
    "ParameterCheck",
    "SimulationCheck",
    "Smoothed",
    "agreement",
    "diagnose",
    "explore",
    "group",
    "hunt",
    "modes",
    "pareto_smooth",
    "reliable_below",
    "simulation_check",
]
