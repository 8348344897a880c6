"""Weights, births and deaths of components, as figures show them."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from component_traces import events, history

mpl.use("agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgba

from natmix.experiments.figures import plot_component_weights
from natmix.experiments.figures.base import Subject
from natmix.experiments.figures.component_events import COMPONENT_EVENTS
from natmix.experiments.figures.component_weights import group_weights
from natmix.experiments.runs import Run, SeedRun, WeightHistory
from natmix.plot import plot_component_events
from natmix.plot.component_events import round_up
from natmix.plot.style import COMPONENT

# Weights over time ------------------------------------------------------------------------------


@pytest.mark.parametrize("components", [1, 5, 300])
def test_ribbons_hold_all_the_weight(components):
    ribbons = group_weights(history(components), own=9, min_share=0.015, cohorts=5)
    np.testing.assert_allclose(ribbons.weights.sum(1), 1, atol=1e-6)
    assert ribbons.weights.shape == (40, len(ribbons.labels))
    assert len(ribbons.labels) == components if components <= 9 else len(ribbons.labels) <= 14


def test_a_ribbon_is_the_weight_of_its_component():
    past = history()
    ribbons = group_weights(past, own=3, min_share=0.0, cohorts=4)
    assert ribbons.own == 3
    assert ribbons.labels[0].endswith("component 0")
    for t in (0, 17, 39):
        ids, weights = past.at(t)
        assert ribbons.weights[t, 0] == pytest.approx(float(weights[ids == 0][0]))


def test_cohorts_are_in_order_of_birth_and_complete():
    past = history()
    ribbons = group_weights(past, own=0, min_share=0.0, cohorts=5)
    assert ribbons.own == 0
    counts = [int(label.split()[1]) for label in ribbons.labels]
    assert sum(counts) == len(np.unique(past.ids))
    first = [np.flatnonzero(ribbons.weights[:, k])[0] for k in range(len(counts))]
    assert first == sorted(first)


def test_the_stack_reaches_from_zero_to_one(tmp_path):
    ax = plot_component_weights(history())
    assert (ax.get_ylim(), ax.get_xlim()) == ((0, 1), (1, 391))
    bottom, top = (c.get_paths()[0].vertices[:, 1] for c in (ax.collections[0], ax.collections[-1]))  # type: ignore[index]
    assert bottom.min() == 0  # type: ignore[union-attr]
    assert top.max() == pytest.approx(1, abs=1e-6)  # type: ignore[union-attr]
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert len(labels) == len(ax.collections) <= 14
    assert labels[-1].endswith("component 0")  # the legend in the order of the stack
    ax.figure.savefig(tmp_path / "weights.png")  # type: ignore[union-attr]


def test_the_legend_leaves_out_what_is_gone_and_says_so():
    rows = [(1, np.arange(3), np.array([0.5, 0.3, 0.2])), (2, np.arange(3), np.array([0.6, 0.3996, 0.0004]))]
    ax = plot_component_weights(WeightHistory.from_rows(rows))
    assert len(ax.collections) == 3
    legend = ax.get_legend()
    assert [t.get_text() for t in legend.get_texts()] == ["40.0%  component 1", "60.0%  component 0"]
    assert legend.get_title().get_text() == "weight at the end, 0.05% or more"


def test_weights_of_one_evaluation_and_of_none():
    _, ax = plt.subplots()
    assert plot_component_weights(history(evaluations=1), ax=ax) is ax
    assert ax.collections[0].get_paths()[0].get_extents().width > 0
    with pytest.raises(ValueError, match="empty"):
        plot_component_weights(WeightHistory.from_rows([]))
    with pytest.raises(ValueError, match="cohorts at least 1"):
        plot_component_weights(history(), cohorts=0)


# Births and deaths ------------------------------------------------------------------------------


@pytest.mark.parametrize("burst", [0, 100])
def test_bars_count_births_and_deaths(burst, tmp_path):
    trace = events(burst=burst)
    above, below = plot_component_events(trace, bars=30)
    np.testing.assert_array_equal(above.lines[0].get_ydata(), trace["components"])
    births, deaths = (np.array([bar.get_height() for bar in group]) for group in below.containers)
    assert len(births) == 26  # of five iterations each
    assert below.get_ylabel() == "per 5 iterations"
    assert births.sum() == trace["added"].sum()
    assert births[3] == trace["added"][15:20].sum()
    assert -deaths.sum() == trace["deleted"].sum()
    low, high = below.get_ylim()
    assert low < deaths.min()
    assert high > births.max()
    assert below.get_yscale() == ("symlog" if burst else "linear")
    assert to_rgba(COMPONENT) == below.containers[0][0].get_facecolor()
    above.figure.savefig(tmp_path / "events.png")  # type: ignore[union-attr]


def test_events_on_given_axes_and_bad_input():
    _, axes = plt.subplots(2)
    assert plot_component_events(events(), axes=tuple(axes)) == tuple(axes)
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_component_events({})
    with pytest.raises(ValueError, match="bars=0"):
        plot_component_events(events(), bars=0)


@pytest.mark.parametrize(("value", "rounded"), [(0.2, 1), (1, 1), (1.1, 2), (3, 5), (5.01, 10), (333, 500)])
def test_round_widths(value, rounded):
    assert round_up(value) == rounded


def test_the_components_of_all_seeds_are_shown():
    seeds = {n: SeedRun(n, {}, events(), WeightHistory.from_rows([]), None) for n in range(3)}
    seeds[2].trace["components"] = seeds[2].trace["components"] + 40
    seeds[3] = SeedRun(3, {}, {}, WeightHistory.from_rows([]), None)
    drawing = COMPONENT_EVENTS.draw(Subject(Run(Path("runs/a"), {}, {}, seeds), seeds[0]))
    above = drawing.figure.axes[0]
    assert drawing.note == "thin lines: the other seeds"
    thin = [line for line in above.get_lines() if line.get_linewidth() < 1]
    np.testing.assert_array_equal(thin[1].get_ydata(), seeds[2].trace["components"])
    assert len(thin) == 2
    assert above.get_ylim()[1] > seeds[2].trace["components"].max()
