"""MMD, sliced Wasserstein distance and detected modes."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from natmix import Mixture
from natmix.experiments.metrics import detected_modes, mmd, mmd_to_reference, sliced_wasserstein
from natmix.experiments.references.store import save


def brute_force_mmd(x, y, alpha):
    """Straight from the definition."""
    first = y[:1000]
    S = np.array([np.median([(a - b) ** 2 for a in column for b in column]) for column in first.T])

    def k(a, b):
        return np.exp(-sum((a - b) ** 2 / (alpha * S)))

    def mean(a, b):
        return np.mean([[k(u, v) for v in b] for u in a])

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


@pytest.mark.parametrize("alpha", [20.0, 6.0, 0.5])
def test_mmd_is_its_definition(alpha):
    rng = np.random.default_rng(0)
    x, y = rng.normal(1, 2, (17, 3)), rng.normal(50, [1, 3, 0.1], (23, 3))
    assert mmd(x, y, alpha) == pytest.approx(brute_force_mmd(x, y, alpha), rel=1e-12)


def test_scale_comes_from_the_first_thousand_reference_points():
    rng = np.random.default_rng(1)
    first, rest = rng.normal(size=(1000, 1)), rng.normal(0, 30, (500, 1))
    x = rng.normal(size=(200, 1))
    S = np.median((first - first.T) ** 2)
    y = np.concatenate([first, rest])

    def mean(a, b):
        return np.exp(-((a - b.T) ** 2) / (6 * S)).mean()

    assert mmd(x, y, 6.0) == pytest.approx(mean(x, x) + mean(y, y) - 2 * mean(x, y), rel=1e-10)


def test_mmd_of_gaussians():
    """E exp(-d^2/c) for d ~ N(m, v) is exp(-m^2/(c + 2v)) / sqrt(1 + 2v/c); self pairs add 1/n and 1/m."""
    n, m = 700, 1000
    found, exact = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(0.7, 1.3, (n, 1)), rng.normal(0.0, 1.0, (m, 1))
        c = 6 * np.median((y - y.T) ** 2)

        def expected(mean, variance, c=c):
            return np.exp(-(mean**2) / (c + 2 * variance)) / np.sqrt(1 + 2 * variance / c)

        within_x, within_y = expected(0, 2 * 1.3**2), expected(0, 2.0)
        between = expected(0.7, 1 + 1.3**2)
        bias = (1 - within_x) / n + (1 - within_y) / m
        exact.append(within_x + within_y - 2 * between + bias)
        found.append(mmd(x, y, 6.0))
    gap = np.array(found) - np.array(exact)
    assert abs(gap.mean()) < 3 * gap.std(ddof=1) / np.sqrt(len(gap))
    assert gap.std() < 0.3 * np.mean(exact)


def test_mmd_of_equal_sets_is_zero_and_of_equal_distributions_is_the_bias():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 1500, 4))
    assert mmd(x, x, 20.0) == pytest.approx(0, abs=1e-14)
    assert 0.2 < mmd(x, y, 20.0) / (2 / 1500) < 1


def test_mmd_in_blocks_equals_mmd_at_once(monkeypatch):
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(301, 2)), rng.normal(size=(200, 2))
    whole = mmd(x, y, 6.0)
    monkeypatch.setattr(sys.modules["natmix.experiments.metrics.mmd"], "_ELEMENTS", 1000)
    assert mmd(x, y, 6.0) == pytest.approx(whole, rel=1e-12)


def test_mmd_to_reference_uses_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NATMIX_CACHE", str(tmp_path))
    q = Mixture.full([1.0], [np.zeros(10)], [np.eye(10)])
    with pytest.raises(FileNotFoundError, match="natmix references planar_robot_4"):
        mmd_to_reference("planar_robot_4", q, 0)
    y = np.random.default_rng(0).normal(size=(500, 10))
    save("planar_robot_4", y, {})
    assert mmd_to_reference("planar_robot_4", q, 7) == pytest.approx(mmd(q.sample(2000, key=7), y, 6.0))
    save("planar_robot_4", 2 * y, {})  # other samples, another kernel
    assert mmd_to_reference("planar_robot_4", q, 7) == pytest.approx(mmd(q.sample(2000, key=7), 2 * y, 6.0))
    save("german_credit", y, {})
    assert mmd_to_reference("german_credit_mb", q, 7) == pytest.approx(mmd(q.sample(2000, key=7), y, 20.0))
    with pytest.raises(ValueError, match="no reference samples of 'gmm20'"):
        mmd_to_reference("gmm20", q, 0)


@pytest.mark.parametrize(
    ("x", "y", "alpha", "words"),
    [
        (np.zeros((3, 2)), np.arange(8.0).reshape(4, 2), -1.0, "alpha must be positive"),
        (np.zeros((3, 1)), np.arange(8.0).reshape(4, 2), 1.0, r"shape \[N, 2\]"),
        (np.zeros((3, 1)), np.zeros((5, 1)), 1.0, "Dimension 0"),
        (np.zeros((3, 1)), np.full((5, 1), np.nan), 1.0, "finite"),
    ],
)
def test_bad_mmd_input(x, y, alpha, words):
    with pytest.raises(ValueError, match=words):
        mmd(x, y, alpha)


# Sliced Wasserstein -----------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 30), m=st.integers(1, 30), seed=st.integers(0, 1000))
def test_on_the_line_it_is_scipys_wasserstein_distance(n, m, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n, 1)), rng.normal(1, 2, size=(m, 1))
    expected = stats.wasserstein_distance(a[:, 0], b[:, 0])
    assert sliced_wasserstein(a, b, 0, projections=3, p=1) == pytest.approx(expected, rel=1e-9)


def test_unequal_numbers_equal_repeated_points():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    repeated = sliced_wasserstein(np.repeat(a, 2, 0), np.repeat(b, 3, 0), 1)
    assert sliced_wasserstein(a, b, 1) == pytest.approx(repeated, rel=1e-12)


def test_of_gaussians():
    """SW_2^2 between N(m, s^2 I) and N(0, I) is |m|^2 / D + (s - 1)^2."""
    rng = np.random.default_rng(1)
    shift, s, n = np.array([1.0, -2, 0.5, 0]), 1.7, 20_000
    a, b = shift + s * rng.normal(size=(n, 4)), rng.normal(size=(n - 1000, 4))
    exact = np.sqrt(shift @ shift / 4 + (s - 1) ** 2)
    assert sliced_wasserstein(a, b, 0, projections=400) == pytest.approx(exact, rel=0.06)
    # A shift alone is exact for the directions drawn, and a multiple of it is the same multiple.
    one, three = (sliced_wasserstein(b, b + c * shift, 0) for c in (1, 3))
    assert three == pytest.approx(3 * one, rel=1e-10)


def test_blocks_of_projections_change_nothing(monkeypatch):
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(50, 3)), rng.normal(size=(70, 3))
    whole = sliced_wasserstein(a, b, 0, projections=20)
    monkeypatch.setattr(sys.modules["natmix.experiments.metrics.sliced_wasserstein"], "_ELEMENTS", 300)
    assert sliced_wasserstein(a, b, 0, projections=20) == pytest.approx(whole, rel=1e-12)
    assert sliced_wasserstein(a, a[::-1], 0) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "options", "words"),
    [
        (np.zeros((3, 2)), np.zeros((3, 1)), {}, "same D"),
        (np.zeros((0, 2)), np.zeros((3, 2)), {}, "same D"),
        (np.zeros((3, 2)), np.zeros((3, 2)), {"projections": 0}, "at least one projection"),
        (np.zeros((3, 2)), np.zeros((3, 2)), {"p": 0.5}, "p >= 1"),
    ],
)
def test_bad_wasserstein_input(a, b, options, words):
    with pytest.raises(ValueError, match=words):
        sliced_wasserstein(a, b, 0, **options)


# Modes ------------------------------------------------------------------------------------------


def test_a_mode_counts_within_the_norm_of_six_per_dimension():
    D = 20
    radius = np.linalg.norm(np.full(D, 6.0))
    centre = np.zeros(D)
    away = np.eye(D)[3]
    q = Mixture.diagonal([0.5, 0.5], [centre, centre + 1000 * away], np.ones((2, D)))
    inside, outside = 0.9999 * radius * away, 1.0001 * radius * away
    assert detected_modes(q, [inside]) == 1
    assert detected_modes(q, [outside]) == 0
    assert detected_modes(q, [inside, outside, 1000 * away + inside, -outside, inside]) == 3


def test_absent_components_find_nothing():
    q = Mixture.diagonal([1.0, 1.0], [[0.0], [100.0]], np.ones((2, 1)))
    absent = Mixture(jnp.array([0.0, -jnp.inf]), q.components)
    assert detected_modes(q, [[0.0], [100.0]]) == 2
    assert detected_modes(absent, [[0.0], [100.0]]) == 1


def test_modes_must_have_the_mixtures_dimension():
    q = Mixture.diagonal([1.0], [[0.0]], [[1.0]])
    with pytest.raises(ValueError, match=r"shape \[M, 1\]"):
        detected_modes(q, [[0.0, 1.0]])
