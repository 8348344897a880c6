"""The first picture of a fit, rendered and asked what it shows and whether it can be read."""

import dataclasses
import itertools
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")

import matplotlib.pyplot as plt

from natmix import GMMVI, Mixture, Result
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import Elbo
from natmix.models import AbstractModel
from natmix.plot import plot_corner
from natmix.plot.corner_layout import CornerLayout
from natmix.result import Counts, Timings
from tests.plot.test_figures import N, blank


def random_mixture(dim, components=3):
    rng = np.random.default_rng(0)
    means = rng.normal(0, 2, (components, dim))
    return Mixture.diagonal(np.full(components, 1 / components), means, np.ones((components, dim)))


def fitted(dim):
    steps = np.arange(N)
    trajectory = {
        "elbo": -1234.5 - 0.01 * np.exp(-steps / 10),
        "components": 1 + steps // 20,
        "total_evaluations": 50_000 * (steps + 1),
        "seconds": 0.1 * (steps + 1),
    }
    records = (blank(Elbo), trajectory, blank(Counts), blank(Timings))
    return Result(random_mixture(dim), *records, "converged", GMMVI.from_codename("samtron"), {}, ())


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("name", ["x", "log_of_a_rate[10]"])
def test_nothing_overlaps_and_nothing_is_cut_off(dim, name):
    axes = fitted(dim).plot(labels=[f"{name}{i}" for i in range(dim)], samples=50)
    assert_readable(axes.figure)


def test_twenty_dimensions_can_be_read():
    axes = fitted(20).plot(labels=[f"theta[{i}]" for i in range(20)], samples=50, components=False)
    assert axes.shape == (20, 20)
    assert_readable(axes.figure)


def assert_readable(figure):
    figure.draw_without_rendering()
    whole = figure.bbox
    frames = [ax.get_window_extent() for ax in figure.axes]
    for a, b in itertools.combinations(frames, 2):
        assert a.overlaps(b) is False or min(_depth(a, b)) < 0.5
    texts = [t for ax in figure.axes for t in _texts(ax)]
    boxes = [t.get_window_extent() for t in texts]
    for text, box in zip(texts, boxes, strict=True):
        inside = whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1
        assert inside, f"{text.get_text()!r} leaves the figure"
    for (t, a), (u, b) in itertools.combinations(zip(texts, boxes, strict=True), 2):
        assert min(_depth(a, b)) < 1, f"{t.get_text()!r} lies on {u.get_text()!r}"


def _texts(ax):
    ticks = [
        label
        for axis in (ax.xaxis, ax.yaxis)
        for tick in axis.get_major_ticks()
        for label in (tick.label1,)
        if axis.get_view_interval()[0] <= tick.get_loc() <= axis.get_view_interval()[1]
    ]
    found = [ax.xaxis.label, ax.yaxis.label, ax.title, ax._left_title, *ticks]
    return [t for t in found if t.get_visible() and t.get_text()]


def _depth(a, b):
    """How far two boxes reach into each other, in pixels."""
    return min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)


def test_the_picture_has_corner_elbo_and_components():
    result = fitted(4)
    axes = result.plot()
    np.testing.assert_array_equal(axes.elbo.lines[0].get_ydata(), result.trajectory["elbo"])
    np.testing.assert_array_equal(axes.components.lines[0].get_ydata(), result.trajectory["components"])
    assert axes.components.get_xlabel() == "evaluations of the target"
    assert len(axes.figure.axes) == 4 * 4 + 2
    assert len(axes[2, 1].patches) == 3
    np.testing.assert_allclose(
        [p.center for p in axes[2, 1].patches], np.asarray(result.mixture.means)[:, [1, 2]]
    )


def test_traces_can_be_left_out_and_are_where_there_are_none():
    for result, options in (
        (fitted(2), {"traces": False}),
        (dataclasses.replace(fitted(2), trajectory={}), {}),
    ):
        axes = result.plot(**options)
        assert axes.elbo is None
        assert axes.components is None
        assert len(axes.figure.axes) == 4


def test_options_of_the_traces_are_passed_on():
    axes = fitted(2).plot(x="seconds", log_evidence=0.0)
    assert axes.components.get_xlabel() == "seconds"
    assert axes.elbo.get_legend() is not None


def test_beyond_twenty_dimensions_those_are_shown_in_which_components_differ():
    means = np.zeros((2, 30))
    telling = [2, 5, 11, 17, 23, 29]
    means[0, telling] = 4.0
    mixture = Mixture.diagonal([0.5, 0.5], means, np.ones((2, 30)))
    axes = plot_corner(mixture, samples=50)
    assert [axes[-1, j].get_xlabel() for j in range(6)] == [f"x[{d}]" for d in telling]
    (remark,) = [t.get_text() for t in axes[0, 0].figure.texts]
    assert "6 of 30" in remark
    with pytest.raises(ValueError, match="1 to 20"):
        plot_corner(mixture, dims=range(21))


def test_only_components_that_are_drawn_choose_the_dimensions():
    means = np.zeros((3, 30))
    means[1, [3, 9]] = 2.0
    means[2, 20:] = 50.0
    heavy = Mixture.diagonal([0.6, 0.3995, 0.0005], means, np.ones((3, 30)))
    axes = plot_corner(heavy, samples=50)
    names = [axes[-1, j].get_xlabel() for j in range(6)]
    assert "x[3]" in names
    assert "x[9]" in names
    (remark,) = [t.get_text() for t in axes[0, 0].figure.texts]
    assert "2 of 3 components drawn, the other has 0.05%" in remark
    alone = plot_corner(Mixture.diagonal([0.9995, 0.0005], means[1:], np.ones((2, 30))), samples=50)
    assert [alone[-1, j].get_xlabel() for j in range(6)] == [f"x[{j}]" for j in range(6)]
    assert "the first 6 of 30" in alone[0, 0].figure.texts[0].get_text()


def test_ellipses_are_within_their_panels():
    means = np.array([[0.0, 0], [7, 7], [-9, 5]])
    mixture = Mixture.diagonal([0.98, 0.01, 0.01], means, np.ones((3, 2)))
    ax = plot_corner(mixture, samples=500)[1, 0]
    for ellipse in ax.patches:
        for centre, half, (low, high) in (
            (ellipse.center[0], ellipse.width / 2, ax.get_xlim()),
            (ellipse.center[1], ellipse.height / 2, ax.get_ylim()),
        ):
            assert low <= centre - half
            assert centre + half <= high


def named(transform, names=("mu", "tau[0]", "tau[1]", "p")):
    """A result of a model whose variables are what ``transform`` makes of the vectors."""

    class Named(AbstractModel):
        dim = 4
        coordinates = names

        def log_density(self, x):
            raise NotImplementedError

        def constrain(self, x):
            return transform(np.asarray(x))

        def start(self, key):
            return None

    x = np.random.default_rng(0).normal(size=(100, 4))
    return dataclasses.replace(
        fitted(4), model=Named(), draws=EvaluatedDraws(x, np.zeros(100), np.zeros(100))
    )


def test_names_say_how_variables_were_transformed():
    result = named(
        lambda x: {"mu": x[:, 0], "tau": np.exp(x[:, 1:3]), "p": 1 / (1 + np.exp(-x[:, 3])), "other": x[:, 0]}
    )
    axes = result.plot(samples=50)
    assert [ax.get_xlabel() for ax in axes[-1]] == ["mu", "log tau[0]", "log tau[1]", "logit p"]
    assert "unconstrained" in axes.figure.texts[0].get_text()
    axes = result.plot(dims=["tau", "mu"], samples=50)
    assert [ax.get_xlabel() for ax in axes[-1]] == ["log tau[0]", "log tau[1]", "mu"]
    assert result.plot(dims="mu", samples=50).figure.texts[0].get_text() == ""
    strange = named(lambda x: {"mu": x[:, 0], "tau": 3 + np.exp(x[:, 1:3]), "p": 2 / (1 + np.exp(-x[:, 3]))})
    labels = [ax.get_xlabel() for ax in strange.plot(samples=50)[-1]]
    assert labels == ["mu", *(f"{n} (unconstrained)" for n in ("tau[0]", "tau[1]", "p"))]
    with pytest.raises(ValueError, match="dims names 'sigma', but the coordinates are mu, "):
        result.plot(dims=["sigma"])
    with pytest.raises(ValueError, match="whole numbers or names"):
        result.plot(dims=[0.5])


def test_long_names_are_shortened_in_the_middle():
    names = tuple(f"{'a_very_long_name' * 6}[{i}]" for i in range(3))
    long = named(lambda x: {names[0][:-3]: x[:, :3], "p": x[:, 3]}, (*names, "p"))
    axes = long.plot(samples=50)
    labels = [ax.get_xlabel() for ax in axes[-1]]
    assert len(set(labels)) == 4
    assert all(len(label) <= 20 for label in labels)
    assert labels[1].endswith("[1]")
    assert_readable(axes.figure)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_traces_beside_the_panels_are_as_high_as_they_are(n):
    axes = fitted(n).plot(samples=50)
    panels = [axes[i, 0].get_position() for i in range(n)]
    assert axes.elbo.get_position().y1 == pytest.approx(panels[0].y1)
    assert axes.components.get_position().y0 == pytest.approx(panels[-1].y0)


def test_words_take_the_colour_and_size_of_the_user_s_style():
    with plt.style.context("dark_background"), mpl.rc_context({"font.size": 20}):
        axes = fitted(2).plot(samples=50)
        assert axes[1, 0].xaxis.label.get_color() == "white"
        assert axes.elbo.yaxis.label.get_fontsize() == pytest.approx(18)
    assert fitted(2).plot(samples=50).elbo.yaxis.label.get_color() != "white"


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("n", range(1, 21))
def test_traces_keep_clear_of_the_corner(n, whole):
    layout = CornerLayout(n, 8, traces=True, whole=whole)
    panels = [layout.rectangle(i, j) for i in range(n) for j in range(n if whole else i + 1)]
    for x, y, wide, high in layout.trace_rectangles():
        assert wide > 0
        assert high > 0
        assert x + wide <= 1
        assert y + high <= 1
        for left, low, w, h in panels:
            apart = left + w <= x or x + wide <= left or low + h <= y or y + high <= low
            assert apart


@pytest.mark.parametrize(
    ("n", "scale", "centre", "name"),
    [
        (12, 1.0, 0.0, "x"),
        (20, 150.0, 5e4, "x"),
        (11, 1.0, 1e4, "x"),
        (5, 1e-6, 0.0, "x"),
        (13, 1e-2, 1e5, "theta"),
        (3, 1e9, 0.0, "x"),
        (16, 3.0, 0.0, "amplitude"),
    ],
)
def test_names_and_numbers_keep_clear_of_each_other(n, scale, centre, name):
    rng = np.random.default_rng(n)
    means = centre + 3 * scale * rng.normal(size=(3, n))
    mixture = Mixture.full(np.ones(3), means, np.stack([np.eye(n) * scale**2] * 3))
    options: dict[str, Any] = {"components": False, "contours": n <= 5}  # the other half has no words
    panels = plot_corner(mixture, samples=200, labels=[f"{name}[{i}]" for i in range(n)], **options)
    figure = panels[0, 0].figure
    for ax in filter(None, panels[:-1, 1:].flat):  # those without names and numbers take long to draw
        ax.set_visible(False)
    figure.draw_without_rendering()
    bottom = [ax.xaxis for ax in panels[-1]]
    left = [ax.yaxis for ax in panels[1:, 0]]
    words = []
    for axis in bottom + left:
        ticks = [t for t in axis.get_ticklabels() if t.get_visible() and t.get_text()]
        assert 1 <= len(ticks) <= 8
        values = [float(t.get_text().replace("−", "-")) for t in ticks]
        np.testing.assert_allclose(values, axis.get_ticklocs(), rtol=1e-9, atol=scale / 50)
        words += [*ticks, axis.label]
    boxes = [w.get_window_extent() for w in words]
    page = figure.bbox
    for i, a in enumerate(boxes):
        assert page.x0 <= a.x0 and page.y0 <= a.y0  # noqa: PT018
        for j, b in enumerate(boxes[:i]):
            clear = a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 or b.y1 <= a.y0
            assert clear, (words[i].get_text(), words[j].get_text())
