"""Figures of a fit by name."""

import inspect

import matplotlib as mpl
import pytest

mpl.use("agg")

import matplotlib.pyplot as plt

from natmix import plot
from natmix.plot import FIGURES, FitFigure, draw, register
from natmix.plot.style import figure_of
from tests.plot.test_fit import fitted


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "overview"])
def test_every_figure_is_drawn_from_a_result_and_prints_nothing(name, capfd):
    axes = draw(fitted(2), name)
    first = axes[0, 0] if isinstance(axes, plot.FitAxes) or hasattr(axes, "ndim") else axes
    first = first[0] if isinstance(first, tuple | list) else first
    assert figure_of(first).axes
    assert capfd.readouterr() == ("", "")


def test_options_reach_the_figure():
    assert draw(fitted(2), "overview", target=fitted(2).mixture.log_prob, resolution=20)[0].figure.axes
    assert draw(fitted(4), dims=[0, 2], traces=False, samples=50).shape == (2, 2)


def test_the_default_is_that_of_result_plot():
    assert inspect.signature(draw).parameters["figure"].default == "fit"
    assert FIGURES["fit"].plot is plot.plot_fit


def test_a_registered_figure_is_found_by_name():
    seen = []
    figure = register(FitFigure("weights", lambda result, **options: seen.append((result, options))))
    try:
        result = fitted(2)
        draw(result, "weights", bars=3)
        assert seen == [(result, {"bars": 3})]
        with pytest.raises(
            ValueError, match=r"^There is a figure of a fit 'weights' already: choose another name\.$"
        ):
            register(FitFigure("weights", plot.plot_fit))
        assert FIGURES["weights"] is figure
    finally:
        del FIGURES["weights"]


@pytest.mark.parametrize("name", ["conrer", None, 3])
def test_an_unknown_figure_gets_a_sentence_with_all_names(name):
    with pytest.raises(ValueError, match=r"^figure must be one of 'fit', 'corner', .*, got "):
        draw(fitted(2), name)


def test_every_function_of_a_fit_is_registered():
    """All functions of `natmix.plot` but those of densities, traces of runs and simulation checks."""
    functions = {name.removeprefix("plot_") for name in plot.__all__ if name.startswith("plot_")}
    assert functions - set(FIGURES) == {"component_events", "density_2d", "ranks"}
