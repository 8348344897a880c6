"""How good a fit is: Pareto's k-hat, effective sample size, evidence, modes, and a verdict in words."""

from natmix.diagnostics.agreement import Agreement, UnsharedMode, agreement
from natmix.diagnostics.diagnosis import Diagnosis, diagnose
from natmix.diagnostics.exploration import Exploration, explore
from natmix.diagnostics.judgement import HIDDEN_SHARE
from natmix.diagnostics.known_modes import MissedMode
from natmix.diagnostics.mode_search import ModeSearch, search_modes
from natmix.diagnostics.modes import Mode, mode_labels, modes
from natmix.diagnostics.psis import SmoothedWeights, k_hat_limit, pareto_smooth
from natmix.diagnostics.search_problem import SearchProblem

__all__ = [
    "HIDDEN_SHARE",
    "Agreement",
    "Diagnosis",
    "Exploration",
    "MissedMode",
    "Mode",
    "ModeSearch",
    "SearchProblem",
    "SmoothedWeights",
    "UnsharedMode",
    "agreement",
    "diagnose",
    "explore",
    "k_hat_limit",
    "mode_labels",
    "modes",
    "pareto_smooth",
    "search_modes",
]
