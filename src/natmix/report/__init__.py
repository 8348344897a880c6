"""Pictures of a fit; they need matplotlib (``pip install natmix[plot]``), imported when first used."""

from natmix.report._components_2d import plot_components_2d
from natmix.report._density_2d import plot_density_2d
from natmix.report._fit_2d import plot_fit_2d
from natmix.report._overview import plot_overview
from natmix.report._trajectory import plot_trajectory

__all__ = ["plot_components_2d", "plot_density_2d", "plot_fit_2d", "plot_overview", "plot_trajectory"]
