"""Pictures, rendered without a window and asked what they show."""

import dataclasses

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")

import matplotlib.pyplot as plt

from natmix import GMMVI, Mixture, Result
from natmix.diagnostics.elbo import Elbo
from natmix.plot import plot_components_2d, plot_density_2d, plot_fit_2d, plot_overview, plot_trajectory
from natmix.plot.density_2d import MASSES, mass_levels
from natmix.plot.grid import on_grid, window
from natmix.plot.trajectory import running_mean, short_number
from natmix.result import Counts, Timings

MIXTURE = Mixture.full(
    [0.6, 0.3, 0.1],
    [[-2.0, 0.0], [2.0, 1.0], [0.0, 3.0]],
    [[[1.0, 0.6], [0.6, 0.5]], [[0.3, 0.0], [0.0, 0.8]], [[0.2, -0.1], [-0.1, 0.2]]],
)
BOUNDS = (-6.0, 5.0, -4.0, 6.0)
N = 80


def blank(record, **values):
    return record(**{**{field.name: 0 for field in dataclasses.fields(record)}, **values})


@pytest.fixture
def result():
    steps = np.arange(N)
    trajectory = {
        "elbo": -5 * np.exp(-steps / 10),
        "components": 1 + steps // 20,
        "total_evaluations": 50_000 * (steps + 1),
        "seconds": 0.1 * (steps + 1),
    }
    return Result(
        mixture=MIXTURE,
        elbo=blank(Elbo, value=-0.01, standard_error=0.002),
        trajectory=trajectory,
        counts=blank(Counts),
        timings=blank(Timings),
        stopped="converged",
        algorithm=GMMVI.from_codename("samtron"),
        settings={},
        notes=(),
    )


def contour_levels(ax):
    return ax.collections[0].levels


def test_ellipses_match_the_covariances():
    ax = plot_components_2d(MIXTURE, deviations=1.5)
    assert len(ax.patches) == 3
    for ellipse, mean, covariance in zip(ax.patches, MIXTURE.means, MIXTURE.covariances, strict=True):
        outline = ellipse.get_patch_transform().transform(ellipse.get_path().vertices)
        offset = outline - np.asarray(mean)
        distance = np.sqrt(np.einsum("ni,ij,nj->n", offset, np.linalg.inv(covariance), offset))
        on_curve = np.abs(distance - 1.5) < 0.01  # a path of splines: its control points lie outside
        assert on_curve.sum() >= 8
        assert (distance[:-1] > 1.49).all()


def test_heavier_components_are_drawn_stronger_and_negligible_ones_not_at_all():
    mixture = Mixture.full([0.7, 0.2999, 0.0001], MIXTURE.means, MIXTURE.covariances)
    heavy, light = plot_components_2d(mixture).patches
    assert heavy.get_alpha() > light.get_alpha()
    assert heavy.get_linewidth() > light.get_linewidth()


def test_the_grid_is_normalised_whatever_the_target():
    reference = on_grid(MIXTURE, BOUNDS, 80)
    np.testing.assert_allclose(reference.mass.sum(), 1, rtol=1e-9)

    def shifted(x):
        return MIXTURE.log_prob(x) + 7.0

    def outside_jax(x):
        return float(MIXTURE.log_prob(np.asarray(x))) - 3.0

    np.testing.assert_allclose(on_grid(shifted, BOUNDS, 80).log_density, reference.log_density, atol=1e-4)
    coarse = on_grid(MIXTURE, BOUNDS, 12).log_density
    np.testing.assert_allclose(on_grid(outside_jax, BOUNDS, 12).log_density, coarse, atol=1e-4)


def test_contours_enclose_their_masses():
    grid = on_grid(MIXTURE, BOUNDS, 300)
    levels = mass_levels(grid)
    assert (np.diff(levels) > 0).all()
    enclosed = [grid.mass[grid.log_density >= level].sum() for level in levels]
    np.testing.assert_allclose(enclosed, MASSES, atol=2e-3)


def test_the_window_holds_nearly_all_samples():
    left, right, bottom, top = window(MIXTURE)
    x, y = np.asarray(MIXTURE.sample(4000, key=0)).T
    assert np.mean((x > left) & (x < right) & (y > bottom) & (y < top)) > 0.99


def test_a_density_that_vanishes_in_places_is_drawn():
    ax = plot_density_2d(
        lambda x: jnp.where(x[0] > 0, -0.5 * jnp.sum(x**2), -jnp.inf), (-3, 3, -3, 3), resolution=60
    )
    assert np.isfinite(contour_levels(ax)[:-1]).all()
    ax.figure.canvas.draw()


def test_fit_2d_shows_target_components_and_samples(result, tmp_path):
    ax = plot_fit_2d(result, MIXTURE.log_prob, bounds=BOUNDS, samples=50, resolution=60)
    assert ax.get_xlim() == BOUNDS[:2]
    assert ax.get_ylim() == BOUNDS[2:]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$x_1$", "$x_2$")
    assert len(ax.patches) == 3
    (dots,) = (c for c in ax.collections if c.get_label() == "samples")
    assert dots.get_offsets().shape == (50, 2)  # type: ignore[union-attr]
    np.testing.assert_allclose(contour_levels(ax)[:-1], mass_levels(on_grid(MIXTURE, BOUNDS, 60)), atol=1e-4)
    ax.figure.savefig(tmp_path / "fit.png")  # type: ignore[union-attr]
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")


def test_fit_2d_draws_on_given_axes_and_shows_marginals():
    _, ax = plt.subplots()
    mixture = Mixture.diagonal([0.5, 0.5], [[0.0, 1.0, 2.0], [1.0, 1.0, -1.0]], np.ones((2, 3)))
    assert plot_fit_2d(mixture, dims=(2, 0), samples=0, resolution=40, ax=ax) is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$x_{3}$", "$x_{1}$")
    np.testing.assert_allclose([p.center for p in ax.patches], [[2, 0], [-1, 1]])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("x", "label", "last"),
    [
        ("iterations", "iteration", N),
        ("evaluations", "evaluations of the target", 50_000 * N),
        ("seconds", "seconds", 8),
    ],
)
def test_trajectory_over_any_coordinate(result, x, label, last):
    above, below = plot_trajectory(result, x=x)
    assert below.get_xlabel() == label
    assert (above.get_ylabel(), below.get_ylabel()) == ("ELBO", "components")
    assert above.get_xlim()[1] == below.get_xlim()[1] == pytest.approx(last)
    np.testing.assert_array_equal(above.lines[0].get_ydata(), result.trajectory["elbo"])
    np.testing.assert_array_equal(below.lines[0].get_ydata(), result.trajectory["components"])


def test_trajectory_shows_a_known_log_evidence(result):
    above, _ = plot_trajectory(result, log_evidence=0.0)
    labels = [text.get_text() for text in above.get_legend().get_texts()]
    assert labels == ["ELBO", "log evidence"]
    assert above.get_ylim()[1] > 0


def test_trajectory_survives_an_infinite_elbo(result):
    elbo = result.trajectory["elbo"].copy()
    elbo[:3] = -np.inf
    above, _ = plot_trajectory(dataclasses.replace(result, trajectory={**result.trajectory, "elbo": elbo}))
    assert np.isfinite(above.get_ylim()).all()


def test_running_mean():
    values = np.array([1.0, 3.0, -np.inf, 5.0, 7.0])
    np.testing.assert_allclose(running_mean(values, 2), [1, 2, 3, 5, 6])
    np.testing.assert_allclose(running_mean(values[:2], 5), [1, 2])


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (950, "950"), (2_500, "2.5k"), (1_500_000, "1.5M")])
def test_short_numbers(value, text):
    assert short_number(value) == text


def test_overview_tells_the_whole_story(result, tmp_path):
    axes = plot_overview(result, MIXTURE.log_prob, bounds=BOUNDS, log_evidence=0.0, resolution=60)
    left, middle, above, below = axes
    assert len(left.figure.axes) == 4
    assert left.get_title() == "Target density"
    assert middle.get_title() == "Fitted density, 3 components"
    assert above.get_title() == "SAMTRON, ELBO -0.0100 ± 0.0020"
    assert below.get_xlabel() == "iteration"
    np.testing.assert_array_equal(contour_levels(left), contour_levels(middle))
    assert len(middle.patches) == 3
    left.figure.savefig(tmp_path / "overview.png")  # type: ignore[union-attr]
    height, width, _ = plt.imread(tmp_path / "overview.png").shape
    assert (width, height) == (1875, 645)


def test_bad_input_gets_a_sentence(result):
    three = Mixture.diagonal([1.0], np.zeros((1, 3)), np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"3 dimensions.*dims=\(0, 1\)"):
        plot_fit_2d(three)
    with pytest.raises(ValueError, match="marginal of a target"):
        plot_fit_2d(three, lambda x: -jnp.sum(x**2), dims=(0, 1))
    with pytest.raises(ValueError, match="two dimensions"):
        plot_fit_2d(three, dims=(0, 1, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Give the result"):
        plot_fit_2d("fit")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs two dimensions"):
        plot_overview(dataclasses.replace(result, mixture=three), lambda x: -jnp.sum(x**2))
    with pytest.raises(ValueError, match="iterations, evaluations, seconds"):
        plot_trajectory(result, x="epochs")
    with pytest.raises(ValueError, match="before its first iteration"):
        plot_trajectory(dataclasses.replace(result, trajectory={}))
    with pytest.raises(ValueError, match="increasing order"):
        plot_density_2d(MIXTURE, (1, 0, 0, 1))
    with pytest.raises(ValueError, match="zero or not finite everywhere"):
        plot_density_2d(lambda x: -jnp.inf + 0 * x[0], BOUNDS, resolution=10)
