"""Births and deaths of a run's components."""

import numpy as np

from natmix.experiments.figures.base import Drawing, RunFigure, Subject
from natmix.plot.component_events import plot_component_events
from natmix.plot.style import COMPONENT, figure_of


def _draw(subject: Subject) -> Drawing:
    """The events of one seed, and above them the number of components of every seed."""
    above, _ = plot_component_events(subject.seed.trace)
    seeds = [seed for seed in subject.run.seeds.values() if seed is not subject.seed]
    others = [np.asarray(seed.trace["components"]) for seed in seeds if len(seed.trace.get("components", ()))]
    for number in others:
        above.plot(np.arange(1, len(number) + 1), number, color=COMPONENT, linewidth=0.7, alpha=0.4)
    if others:
        top = max(int(number.max()) for number in others)
        above.set_ylim(top=max(above.get_ylim()[1], 1.08 * top))
        above.set_xlim(right=max(above.get_xlim()[1], max(map(len, others)) + 1))
    return Drawing(figure_of(above), "thin lines: the other seeds" if others else "")


COMPONENT_EVENTS = RunFigure("component_events", _draw)
