"""Pictures of a fit; they need matplotlib (``pip install 'natmix[plot]'``), imported when first used."""

from natmix.report._component_events import plot_component_events
from natmix.report._component_weights import plot_component_weights
from natmix.report._components_2d import plot_components_2d
from natmix.report._corner import plot_corner
from natmix.report._density_2d import plot_density_2d
from natmix.report._fit import FitAxes, plot_fit
from natmix.report._fit_2d import plot_fit_2d
from natmix.report._marginals import plot_marginals
from natmix.report._overview import plot_overview
from natmix.report._planar_robot import plot_planar_robot
from natmix.report._ranks import plot_ranks
from natmix.report._talos import plot_talos
from natmix.report._trajectory import plot_trajectory

__all__ = [
    "FitAxes",
    "plot_component_events",
    "plot_component_weights",
    "plot_components_2d",
    "plot_corner",
    "plot_density_2d",
    "plot_fit",
    "plot_fit_2d",
    "plot_marginals",
    "plot_overview",
    "plot_planar_robot",
    "plot_ranks",
    "plot_talos",
    "plot_trajectory",
]
