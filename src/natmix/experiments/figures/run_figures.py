"""Which figures a run has: one file per figure, found by name."""

from collections.abc import Callable, Mapping

from natmix.experiments.figures.base import Drawing, RunFigure, Subject
from natmix.experiments.figures.component_events import COMPONENT_EVENTS
from natmix.experiments.figures.component_weights import COMPONENT_WEIGHTS
from natmix.experiments.figures.learning_curves import LEARNING_CURVES
from natmix.experiments.figures.marginals import MARGINALS
from natmix.experiments.figures.planar_robot import CONFIGURATIONS
from natmix.experiments.figures.talos import POSES
from natmix.registry import add_entry, registry_of

__all__ = ["FIGURES", "Drawing", "RunFigure", "Subject", "figures_of", "register"]

FIGURES: dict[str, RunFigure] = registry_of(
    "figure of a run",
    (LEARNING_CURVES, COMPONENT_WEIGHTS, COMPONENT_EVENTS, MARGINALS, CONFIGURATIONS, POSES),
    lambda figure: figure.name,
)
"""In the order in which they are drawn."""


def register(figure: RunFigure) -> RunFigure:
    """Draw this figure of every run that has it.

    Raises:
        ValueError: another figure has this name.
    """
    add_entry(FIGURES, "figure of a run", figure.name, figure)
    return figure


def figures_of(problem: str) -> Mapping[str, Callable[[Subject], Drawing]]:
    """The figures of a run on this problem: what to call them and how to draw them."""
    return {
        name: figure.draw
        for name, figure in FIGURES.items()
        if not figure.problems or problem in figure.problems
    }
