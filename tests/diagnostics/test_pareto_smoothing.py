"""Pareto smoothed importance weights, against ArviZ and tails of known shape."""

import warnings

import numpy as np
import pytest
from scipy import stats

from natmix.diagnostics import k_hat_limit, pareto_smooth


def psislw(log_w):
    """Smoothed and normalised weights, k-hat, and how close to be: ArviZ 1 fits the tail otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = pytest.importorskip("arviz")
        if hasattr(arviz, "psislw"):
            return *arviz.psislw(log_w.copy()), 1e-8
        return *pytest.importorskip("arviz_stats.base").array_stats.psislw(-log_w), 0.1


@pytest.mark.parametrize("n", [100, 1000, 4000])
@pytest.mark.parametrize("heavy", [0.1, 0.4, 0.8, 1.5])
def test_k_hat_and_smoothed_weights_are_those_of_arviz(n, heavy):
    log_w = heavy * stats.expon.rvs(size=n, random_state=n) + 300
    theirs, k, close = psislw(log_w)
    ours = pareto_smooth(log_w)
    assert ours.k_hat == pytest.approx(float(k), abs=close)
    normalised = ours.log_weights - np.logaddexp.reduce(ours.log_weights)
    np.testing.assert_allclose(normalised, theirs, atol=3 * close)


@pytest.mark.parametrize("shape", [0.2, 0.5, 1.0])
def test_k_hat_finds_the_shape_of_a_pareto_tail(shape):
    drawn = [stats.genpareto.rvs(shape, size=20_000, random_state=s) for s in range(20)]
    found = [pareto_smooth(np.log(w)).k_hat for w in drawn]
    assert np.mean(found) == pytest.approx(shape, abs=0.06)


def test_weights_keep_their_order_and_the_largest_falls():
    log_w = np.log(stats.genpareto.rvs(0.9, size=3000, random_state=0))
    smoothed = pareto_smooth(log_w).log_weights
    np.testing.assert_array_equal(np.argsort(smoothed, kind="stable"), np.argsort(log_w, kind="stable"))
    assert smoothed.max() <= log_w.max()


@pytest.mark.parametrize(
    ("log_w", "k"),
    [
        (np.zeros(1000), -np.inf),
        (np.full(3, 1.0), np.inf),
        (np.full(50, -np.inf), np.inf),
        (np.zeros(0), np.inf),
    ],
)
def test_weights_without_a_tail(log_w, k):
    assert pareto_smooth(log_w).k_hat == k


def test_fewer_samples_must_have_lighter_tails():
    assert k_hat_limit(100) == pytest.approx(0.5)
    assert k_hat_limit(2000) == pytest.approx(1 - 1 / np.log10(2000))
    assert k_hat_limit(10**6) == 0.7


def test_a_tail_that_is_fitted_by_an_exponential_distribution_on_the_grid():
    """Three quarters of the largest weights are equal: one value of the grid is exactly zero."""
    rest = np.full(1011, np.log(0.5))
    log_weights = np.concatenate([rest, np.log(np.linspace(0.6, 0.9, 24)), np.zeros(76)])
    smoothed = pareto_smooth(log_weights)
    assert np.isfinite(smoothed.k_hat)
    assert smoothed.k_hat < 0.5
