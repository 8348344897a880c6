"""Whether to trust a fit: Pareto's k-hat, effective samples, evidence, modes, and a verdict in words."""

from natmix.diagnostics.agreement import Agreement, Missing, agreement
from natmix.diagnostics.diagnosis import HIDDEN_SHARE, Diagnosis, diagnose
from natmix.diagnostics.exploration import Exploration, explore
from natmix.diagnostics.mode_search import Hunt, MissedMode, hunt
from natmix.diagnostics.modes import Mode, group, modes
from natmix.diagnostics.psis import Smoothed, pareto_smooth, reliable_below

__all__ = [
    "HIDDEN_SHARE",
    "Agreement",
    "Diagnosis",
    "Exploration",
    "Hunt",
    "MissedMode",
    "Missing",
    "Mode",
    "Smoothed",
    "agreement",
    "diagnose",
    "explore",
    "group",
    "hunt",
    "modes",
    "pareto_smooth",
    "reliable_below",
]
