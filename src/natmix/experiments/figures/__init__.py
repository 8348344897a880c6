"""Figures of runs and of test problems; they need matplotlib (extra ``plot``)."""

from natmix.experiments.figures.component_weights import plot_component_weights
from natmix.experiments.figures.planar_robot import plot_planar_robot
from natmix.experiments.figures.talos import plot_talos

__all__ = ["plot_component_weights", "plot_planar_robot", "plot_talos"]
