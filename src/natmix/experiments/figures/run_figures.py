"""Which figures a run has: one file per figure, found by name."""

from collections.abc import Callable, Mapping

from natmix.experiments.figures.base import Drawing, RunFigure, Subject
from natmix.experiments.figures.component_events import COMPONENT_EVENTS
from natmix.experiments.figures.component_weights import COMPONENT_WEIGHTS
from natmix.experiments.figures.learning_curves import LEARNING_CURVES
from natmix.experiments.figures.marginals import MARGINALS
from natmix.experiments.figures.planar_robot import CONFIGURATIONS
from natmix.experiments.figures.talos import POSES

__all__ = ["FIGURES", "Drawing", "RunFigure", "Subject", "figures_of"]

FIGURES: list[RunFigure] = [
    LEARNING_CURVES,
    COMPONENT_WEIGHTS,
    COMPONENT_EVENTS,
    MARGINALS,
    CONFIGURATIONS,
    POSES,
]
"""In the order in which they are drawn."""


def figures_of(problem: str) -> Mapping[str, Callable[[Subject], Drawing]]:
    """The figures of a run on this problem: what to call them and how to draw them."""
    return {
        figure.name: figure.draw for figure in FIGURES if not figure.problems or problem in figure.problems
    }
