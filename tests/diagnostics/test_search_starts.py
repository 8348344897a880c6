"""Where a mode search starts, and that it reaches modes far outside of the initial region."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import f

import natmix
from natmix import JaxTarget, Mixture
from natmix.diagnostics import SearchProblem, search_modes
from natmix.diagnostics.search_starts import REACH, around_modes, around_region, gaussian_of_modes, reach

jax.config.update("jax_enable_x64", True)

REGION = natmix.Mixture.full([1.0], [[1.0, -2.0]], [[[4.0, 1.0], [1.0, 0.5]]])
FAR = np.array([3000.0, -2000.0])


def test_modes_near_the_region_change_nothing():
    assert reach(REGION, np.zeros((0, 2))) == REACH
    assert reach(REGION, np.array([[1.0, -2.0], [20.0, 0.0]])) == REACH


def test_a_mode_far_outside_sets_the_scale():
    distance = 1000.0
    L = np.linalg.cholesky(REGION.covariances[0])
    centre = np.asarray(REGION.means[0]) + L @ np.full(2, distance)
    assert reach(REGION, centre[None]) == pytest.approx((*REACH, 1000, 3000, 10_000))


def test_it_does_not_depend_on_the_coordinates():
    rng = np.random.default_rng(0)
    A, b, centres = rng.normal(size=(2, 2)), rng.normal(size=2), 1e3 * rng.normal(size=(3, 2))
    mapped = natmix.Mixture.full(
        [1.0], np.asarray(REGION.means) @ A.T + b, (A @ np.asarray(REGION.covariances[0]) @ A.T)[None]
    )
    assert reach(mapped, centres @ A.T + b) == pytest.approx(reach(REGION, centres))


def test_starting_points_are_spread_by_all_factors():
    rng = np.random.default_rng(0)
    x = around_region(REGION, FAR[None], 8 * 4000, rng)
    whitened = np.linalg.solve(np.linalg.cholesky(REGION.covariances[0]), (x - REGION.means[0]).T)
    spread = [whitened[:, i::8].std() for i in range(8)]
    np.testing.assert_allclose(spread, reach(REGION, FAR[None]), rtol=0.03)


@pytest.mark.parametrize(("known", "dim"), [(2, 5), (3, 4), (12, 3)])
def test_starting_points_allow_for_how_little_a_few_modes_tell(known, dim):
    """Those around the modes have the predictive distribution of another centre, which is Student's t."""
    centres = np.random.default_rng(known).normal(size=(known, dim))
    mean, covariance = gaussian_of_modes(centres)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (around_centres(centres) - mean).T)
    freedom = (known - 1) * dim
    variance = (known + 1) / (known - 1) * freedom / (freedom - 2)
    assert np.mean(whitened**2) == pytest.approx(variance, rel=0.05)
    # The squared distances over D have an F distribution.
    squared = np.sum(whitened**2, axis=0) / dim * (known - 1) / (known + 1)
    assert np.mean(squared > f.ppf(0.95, dim, freedom)) == pytest.approx(0.05, abs=0.005)


def around_centres(centres):
    """Without those that are spread farther."""
    x = around_modes(centres, 120_000, np.random.default_rng(0))
    return x[::3]


def test_a_search_finds_a_narrow_mode_between_two_wide_ones_that_are_known():
    """A fit that has two of three modes, of widths 5, 3.5 and 2: the third owns a small part of the space."""
    means = np.zeros((3, 5))
    means[1, 0], means[2, :3] = 70.0, (60.0, 90.0, 20.0)
    covariances = np.array([5.0, 3.5, 2.0])[:, None, None] ** 2 * np.eye(5)
    truth = Mixture.full(np.full(3, 1 / 3), means, covariances)
    known = Mixture.full(np.full(2, 1 / 2), means[:2], covariances[:2])
    region = Mixture.full([1.0], np.full((1, 5), 30.0), np.eye(5)[None])
    target = JaxTarget(truth.log_prob, 5)
    for seed in range(4):
        problem = SearchProblem(known, target, region, np.log(2 / 3), jax.random.key(seed), 60_000)
        (missed,) = search_modes(problem, 32, widen=True).missed
        np.testing.assert_allclose(missed.position, means[2], atol=0.1)
        assert missed.share == pytest.approx(1 / 3, abs=0.02)


def test_a_fit_finds_modes_on_the_other_side_of_the_origin():
    """Thousands of times as far away as the region is wide; from inside of it all runs end in the nearest."""

    def three(x):
        steps = x - jnp.array([[400.0, 300.0], [-2500.0, 2000.0], [500.0, -6000.0]])
        return jax.nn.logsumexp(-0.5 * jnp.sum(steps**2, axis=1))

    result = natmix.fit(three, 2, progress=False)
    assert result.mixture.num_components >= 3
    assert result.elbo.value == pytest.approx(np.log(3 * 2 * np.pi), abs=0.05)
    assert result.diagnosis.mode_search.reach > max(REACH)
    assert "widths of the initial region away" in str(result.diagnosis)
