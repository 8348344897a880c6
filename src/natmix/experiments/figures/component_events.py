"""Births and deaths of a run's components."""

from natmix.experiments.figures.base import Drawing, RunFigure, Subject
from natmix.plot.component_events import plot_component_events
from natmix.plot.style import figure_of


def _draw(subject: Subject) -> Drawing:
    return Drawing(figure_of(plot_component_events(subject.seed.trace)[0]))


COMPONENT_EVENTS = RunFigure("component_events", _draw)
