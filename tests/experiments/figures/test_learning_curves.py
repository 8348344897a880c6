"""Learning curves of runs."""

from pathlib import Path

import numpy as np
import pytest

from natmix.experiments.figures.learning_curves import learning_curve, plot_comparison, plot_learning_curves
from natmix.experiments.runs import Run, SeedRun, WeightHistory

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def close_figures():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def seed(number, seconds, neg_elbo, compiling=0.0):
    evaluations = {
        "seconds": np.array(seconds, float) + compiling,
        "compile_seconds": np.full(len(seconds), compiling),
        "evaluations": 100 * np.arange(len(seconds)),
        "iterations": np.arange(len(seconds)),
        "neg_elbo": np.array(neg_elbo, float),
    }
    return SeedRun(number, evaluations, {}, WeightHistory.from_rows([]), None)


def run(*seeds, problem="gmm2", codename="SAMTRON", path="runs/a"):
    config = {"problem": {"name": problem}, "algorithm": {"codename": codename}}
    return Run(Path(path), config, {}, {s.seed: s for s in seeds})


TWO = run(seed(0, [1, 2, 4, 8], [9, 5, 3, 1]), seed(1, [2, 3, 10], [7, np.inf, 3]))


def test_a_curve_holds_the_last_evaluation_and_spans_the_seeds():
    curve = learning_curve(TWO)
    assert curve.x[0] == 1
    assert curve.x[-1] == 10
    assert (curve.low[0], curve.high[0]) == (9, 9)  # of one seed, until the other is seen
    assert np.array_equal(np.isnan(curve.mean), curve.x < 2)
    both = np.flatnonzero(curve.x >= 2)[0]
    assert (curve.low[both], curve.high[both], curve.mean[both]) == (5, 7, 6)
    before_4, after_4 = (curve.x >= 2) & (curve.x < 4), (curve.x >= 4) & (curve.x < 8)
    assert set(curve.low[before_4]) == {5}
    assert set(curve.low[after_4]) == {3}
    assert (curve.low[-1], curve.high[-1]) == (1, 3)
    assert np.all((curve.low <= curve.mean) & (curve.mean <= curve.high) | (curve.x < 2))


def test_a_logarithmic_axis_starts_after_zero():
    assert learning_curve(TWO, "evaluations").x[0] == 100


def test_time_is_without_compilation_unless_it_is_asked_for():
    late = run(seed(0, [1, 2, 4], [9, 5, 3], compiling=60.0), seed(1, [2, 8], [7, 3]))
    assert (learning_curve(late).x[0], learning_curve(late).x[-1]) == (1, 8)
    assert (learning_curve(late, "seconds").x[0], learning_curve(late, "seconds").x[-1]) == (2, 64)
    assert plot_learning_curves([late]).get_xlabel() == "seconds, without compilation"


def labels(ax):
    return [line.get_label() for line in ax.get_lines() if not line.get_label().startswith("_")]


def test_every_seed_has_a_line_beside_the_mean():
    ax = plot_learning_curves([TWO, run(seed(0, [1, 5], [4, 2]), codename="ZAMTRUX")])
    lines = ax.get_lines()
    assert labels(ax) == ["SAMTRON", "ZAMTRUX"]
    assert len(lines) == 2 + 2  # of the first run also those of its two seeds
    np.testing.assert_array_equal(lines[0].get_ydata(), learning_curve(TWO).seeds[0])
    assert ax.get_xlim()[0] <= 1
    low, high = ax.get_ylim()
    assert low < 1
    assert high > 7
    assert ax.get_xscale() == "log"
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [([180, 600], {"200", "500"}), ([210, 400], {"250", "300"}), ([0.02, 4e4], {"0.1", "10", "1000", "10k"})],
)
def test_labels_are_plain_numbers_of_one_size(seconds, labels):
    ax = plot_learning_curves([run(seed(0, seconds, [4, 2]))])
    ax.figure.canvas.draw()
    shown = [label for label in ax.get_xticklabels() if label.get_text()]
    assert labels <= {label.get_text() for label in shown}
    assert not any(label.get_text() for label in ax.get_xticklabels(minor=True))
    assert {label.get_fontsize() for label in shown} == {ax.get_yticklabels()[0].get_fontsize()}


def test_the_legend_lies_beside_the_curves():
    figure = plot_comparison([TWO, run(seed(0, [1, 5], [4, 2]), codename="ZAMTRUX")])
    figure.canvas.draw()
    left, right = figure.axes
    assert left.get_legend() is None
    legend = right.get_legend().get_window_extent()
    assert legend.x0 >= right.get_window_extent().x1
    assert legend.x1 <= figure.bbox.x1


def test_runs_of_the_same_algorithm_are_told_apart():
    ax = plot_learning_curves([TWO, run(seed(0, [1, 5], [4, 2]), path="runs/b")])
    assert labels(ax) == ["SAMTRON (a)", "SAMTRON (b)"]


@pytest.mark.parametrize(
    ("values", "scale"),
    [([500, 0.2], "log"), ([500, -0.01], "symlog"), ([500, 300], "linear"), ([20_000, 11.4], "function")],
)
def test_the_scale_suits_the_values(values, scale):
    assert plot_learning_curves([run(seed(0, [1, 5], values))]).get_yscale() == scale


def test_a_late_drop_does_not_hide_the_end():
    late = run(seed(0, [1, 2, 900, 950, 1000], [4e4, 4e4, 79, 78.5, 78]))
    ax = plot_learning_curves([late])
    low, high = ax.get_ylim()
    assert low < 78
    assert high > 4e4
    assert ax.get_xlim()[0] <= 1, "the curve begins with its first point"
    place = ax.transAxes.inverted().transform(ax.transData.transform([[1, y] for y in (78, 79, 4e4)]))[:, 1]
    assert place[1] - place[0] > 0.5, "the end takes most of the height"
    assert place[2] < 1
    ax.figure.canvas.draw()
    shown = [label.get_text() for label in ax.get_yticklabels()]
    assert "78.4" in shown or "78.5" in shown
    assert any("0,000" in label for label in shown)
    stays = run(seed(0, [1, 2], [4e4, 78]), seed(1, [1, 2], [5e4, 4e4]))
    assert plot_learning_curves([stays]).get_ylim()[1] > 4e4  # the end of every curve is shown


def test_a_row_of_pictures_per_problem():
    figure = plot_comparison([TWO, run(seed(0, [1, 5], [4, 2]), problem="wine")])
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["gmm2", "gmm2", "wine", "wine"]
    assert [ax.get_xlabel()[:7] for ax in figure.axes[:2]] == ["seconds", "evaluat"]
    figure.canvas.draw()


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ValueError, match="x must be one of run_seconds, seconds"):
        plot_learning_curves([TWO], x="years")
    with pytest.raises(ValueError, match="no runs"):
        plot_learning_curves([])
    with pytest.raises(ValueError, match="different problems cannot be compared: gmm2, wine"):
        plot_learning_curves([TWO, run(seed(0, [1, 5], [4, 2]), problem="wine")])
    with pytest.raises(ValueError, match="no evaluations of the ELBO yet"):
        plot_learning_curves([run(seed(0, [], []))])
