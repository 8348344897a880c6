"""Marginals of fit and target, rendered without a window and asked what they show."""

import matplotlib as mpl
import numpy as np
import pytest
from figure_texts import texts
from helpers import random_mixture
from scipy.stats import norm

mpl.use("agg")

import matplotlib.pyplot as plt

from natmix import Mixture
from natmix.plot import plot_marginals
from natmix.plot.marginals import marginals

# Marginals --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixture():
    return random_mixture(0, 4, 6)


@pytest.fixture(scope="module")
def samples(mixture):
    return np.asarray(mixture.sample(20_000, key=1))


def test_a_marginal_is_the_mean_density_of_every_bin(mixture, samples):
    (curve,) = marginals(mixture, samples, [2], bins=40)
    std = np.sqrt(np.asarray(mixture.covariances)[:, 2, 2])
    below = norm.cdf(curve.edges[:, None], np.asarray(mixture.means)[:, 2], std) @ np.asarray(mixture.weights)
    np.testing.assert_allclose(curve.fit * np.diff(curve.edges), np.diff(below), atol=1e-6)
    counts, _ = np.histogram(samples[:, 2], curve.edges)
    np.testing.assert_allclose(curve.target * np.diff(curve.edges), counts / len(samples), atol=1e-12)


def test_histogram_and_fit_integrate_to_nearly_one(mixture, samples):
    for curve in marginals(mixture, samples, range(6), bins=50):
        for density in (curve.fit, curve.target):
            assert 0.99 < density @ np.diff(curve.edges) <= 1


def test_the_number_in_a_panel_is_the_largest_difference_of_the_distribution_functions():
    rng = np.random.default_rng(0)
    one = Mixture.diagonal([1.0], [[1.0]], [[1.0]])
    (curve,) = marginals(one, rng.normal(size=(50_000, 1)), [0], bins=400)
    assert curve.distance == pytest.approx(norm.cdf(0.5) - norm.cdf(-0.5), abs=0.01)
    assert marginals(one, rng.normal(1, 1, size=(50_000, 1)), [0], bins=400)[0].distance < 0.01
    (ax,) = plot_marginals(one, np.full((10, 1), 1.0), bins=10)
    assert "0.500" in texts(ax)


def test_marginals_draw_fit_and_target(mixture, samples, tmp_path):
    panels = plot_marginals(mixture, samples, bins=30, source="exact samples")
    assert len(panels) == 6
    for ax, curve in zip(panels, marginals(mixture, samples, range(6), 30), strict=True):
        (line,), (steps,) = ax.lines, ax.patches
        np.testing.assert_array_equal(line.get_ydata(), curve.fit)
        np.testing.assert_array_equal(steps.get_data().values, curve.target)  # type: ignore[attr-defined]
        assert line.get_color() != steps.get_facecolor()
    figure = panels[0].figure
    assert "Fit and target: all 6 marginals" in texts(figure)
    assert any("exact samples" in text for text in texts(figure))
    figure.savefig(tmp_path / "marginals.png")  # type: ignore[union-attr]


def test_twenty_panels_do_not_overlap():
    wide = Mixture.diagonal([1.0], np.zeros((1, 20)), 10.0 ** np.arange(-10, 10)[None])
    panels = plot_marginals(wide)
    figure = panels[0].figure
    figure.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in panels]
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            overlap = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
            assert min(overlap) < 12  # at most a tick label of a few pixels
    assert max(ax.get_tightbbox().y1 for ax in panels) < figure._suptitle.get_window_extent().y0  # type: ignore[union-attr]


def test_of_many_dimensions_the_worst_are_shown(samples):
    fit = Mixture.full([1.0], samples.mean(0)[None], np.cov(samples.T)[None])
    distances = [curve.distance for curve in marginals(fit, samples, range(6), 30)]
    panels = plot_marginals(fit, samples, most=2, bins=30)
    shown = {text for ax in panels for text in texts(ax) if text.startswith("$x")}
    assert shown == {f"$x_{{{d + 1}}}$" for d in np.argsort(distances)[-2:]}
    assert "Fit and target: the 2 of 6 marginals that differ most" in texts(panels[0].figure)


def test_the_fit_alone(mixture):
    panels = plot_marginals(mixture, most=3)
    assert [ax.texts[0].get_text() for ax in panels] == ["$x_{1}$", "$x_{3}$", "$x_{6}$"]
    assert not any(ax.patches for ax in panels)
    assert "Fit: 3 of 6 marginals" in texts(panels[0].figure)
    _, given = plt.subplots(1, 2)
    names = [f"angle {d}" for d in range(6)]
    assert plot_marginals(mixture, dims=[4, 0], labels=names, axes=list(given)) == list(given)
    assert [ax.texts[0].get_text() for ax in given] == ["angle 4", "angle 0"]


def test_marginals_refuse_bad_input(mixture, samples):
    for arguments, message in (
        ({"dims": [6]}, "from 0 to 5"),
        ({"dims": []}, "from 0 to 5"),
        ({"most": 0}, "at least one dimension"),
        ({"bins": 0}, "at least one bin"),
        ({"axes": []}, "6 dimensions to show, but 0 axes"),
        ({"samples": samples[:, :3]}, r"\[N, 6\]"),
        ({"samples": samples[:0]}, r"\[N, 6\]"),
        ({"samples": np.full((3, 6), np.nan)}, "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_marginals(mixture, **arguments)
