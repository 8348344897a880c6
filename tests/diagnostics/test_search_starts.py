"""Where a mode search starts, and that it reaches modes far outside of the initial region."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix.diagnostics.search_starts import REACH, around_region, reach

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
