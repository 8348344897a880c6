"""Contours above the diagonal of a corner plot: what they enclose, and where the target's come from."""

import dataclasses

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")

from natmix import Mixture
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.plot import plot_corner
from natmix.plot.pair_contours import WeightedDraws, mass_heights, pair_grid, weighted_draws
from tests.plot.test_fit import fitted

MEANS = np.array([[-3.0, 0.0], [3.0, 1.0]])
SHAPES = np.stack([np.diag([1.0, 0.5]), np.array([[0.6, 0.4], [0.4, 1.0]])])
RANGES = (-6.5, 6.5), (-4.0, 5.0)


def mixture_of(share):
    return Mixture.full([share, 1 - share], MEANS, SHAPES)


def draws_of(fit, target, n=2000):
    x = np.asarray(fit.sample(n, key=1), float)
    return EvaluatedDraws(x, np.asarray(target.log_prob(x), float) + 7, np.asarray(fit.log_prob(x), float))


def weighted(draws):
    weights = np.exp(draws.log_ratio)
    return WeightedDraws(draws.x, weights / weights.mean())


def test_the_target_s_density_is_recovered_from_importance_weights():
    fit, target = mixture_of(0.5), mixture_of(0.8)
    grid = pair_grid(fit, *RANGES, weighted(draws_of(fit, target)))
    cell = (grid.x[1] - grid.x[0]) * (grid.y[1] - grid.y[0])
    points = np.stack(np.meshgrid(grid.x, grid.y), axis=-1)
    exact = np.exp(np.asarray(target.log_prob(points.reshape(-1, 2)))).reshape(grid.target.shape)
    assert np.abs(grid.mixture - exact).sum() * cell > 0.5
    assert np.abs(grid.target - exact).sum() * cell < 0.06
    assert grid.target[:, grid.x < 0].sum() * cell == pytest.approx(0.8, abs=0.02)


def test_equal_weights_leave_the_mixture_as_it_is():
    fit = mixture_of(0.3)
    grid = pair_grid(fit, *RANGES, weighted(draws_of(fit, fit)))
    np.testing.assert_allclose(grid.target, grid.mixture, rtol=1e-9)
    np.testing.assert_allclose(
        grid.mixture.sum() * np.ptp(RANGES[0]) * np.ptp(RANGES[1]) / 64**2, 1, rtol=1e-3
    )


def test_heights_enclose_their_shares():
    density = pair_grid(mixture_of(0.5), *RANGES, None).mixture
    for share, height in zip((0.9, 0.5), mass_heights(density), strict=True):
        assert density[density >= height].sum() / density.sum() == pytest.approx(share, abs=0.01)


def test_which_results_have_contours_of_the_target():
    fit = mixture_of(0.5)
    assert weighted_draws(fit) == (None, "")
    plain = fitted(2)
    assert weighted_draws(plain) == (None, "")
    good = draws_of(plain.mixture, plain.mixture)
    log_target = good.log_target.copy()
    log_target[:10] = np.nan
    found, why_not = weighted_draws(
        dataclasses.replace(plain, draws=dataclasses.replace(good, log_target=log_target))
    )
    assert len(found.x) == len(found.weights) == 1990
    assert why_not == ""
    few = dataclasses.replace(good, log_target=good.log_target + 30 * good.x[:, 0])
    found, why_not = weighted_draws(dataclasses.replace(plain, draws=few))
    assert found is None
    assert "no contours of the target" in why_not


def test_the_empty_half_of_a_corner_plot():
    result = fitted(3)
    result = dataclasses.replace(result, draws=draws_of(result.mixture, result.mixture))
    axes = plot_corner(result, samples=50)
    lines_only = plot_corner(result.mixture, samples=50)
    for i in range(3):
        for j in range(i + 1, 3):
            assert len(axes[i, j].collections) > len(lines_only[i, j].collections) > 0
            assert axes[i, j].get_xlim() == axes[-1, j].get_xlim()
            assert axes[i, j].get_ylim() == axes[i, 0].get_ylim() if i else True
            assert not any(label.get_visible() for label in axes[i, j].get_xticklabels())
        assert all(not axes[i, j].collections for j in range(i))
    (remark,) = [t.get_text() for t in axes[0, 0].figure.texts]
    assert "grey: the target by importance weights" in remark.replace("\n", " ")
    without = plot_corner(result, samples=50, contours=False)
    assert all(without[i, j] is None for i in range(3) for j in range(i + 1, 3))
