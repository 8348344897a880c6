"""Figures of a fit; they need matplotlib (the extra ``plot``), imported when first used."""

from natmix.plot.component_events import plot_component_events
from natmix.plot.components_2d import plot_components_2d
from natmix.plot.corner import plot_corner
from natmix.plot.density_2d import plot_density_2d
from natmix.plot.figures import FIGURES, FitFigure, draw, register
from natmix.plot.fit import FitAxes, plot_fit
from natmix.plot.fit_2d import plot_fit_2d
from natmix.plot.marginals import plot_marginals
from natmix.plot.overview import plot_overview
from natmix.plot.ranks import plot_ranks
from natmix.plot.trajectory import plot_trajectory

__all__ = [
    "FIGURES",
    "FitAxes",
    "FitFigure",
    "draw",
    "plot_component_events",
    "plot_components_2d",
    "plot_corner",
    "plot_density_2d",
    "plot_fit",
    "plot_fit_2d",
    "plot_marginals",
    "plot_overview",
    "plot_ranks",
    "plot_trajectory",
    "register",
]
