"""SAMTRON recovers known mixtures from one broad component."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import natmix


def known_mixture(seed, K, D):
    """Means uniform in [-50, 50], covariances A^T A + I with A_ij ~ N(0, (0.1 D)^2)."""
    rng = np.random.default_rng(seed)
    A = 0.1 * D * rng.normal(size=(K, D, D))
    means = rng.uniform(-50, 50, size=(K, D))
    return natmix.Mixture.full(np.ones(K), means, np.swapaxes(A, 1, 2) @ A + np.eye(D))


@functools.cache
def recover(seed, K, D):
    target = known_mixture(seed, K, D).astype(jnp.float32)
    result = natmix.fit(
        target.log_prob, D, seed=seed, init_scale=30.0, dtype=jnp.float32, max_iterations=3000
    )
    gaps = np.linalg.norm(np.asarray(result.mixture.means)[:, None] - np.asarray(target.means), axis=-1)
    return result, int(np.sum(gaps.min(axis=0) < 6 * np.sqrt(D)))


@pytest.mark.parametrize(
    ("D", "K"),
    [(4, 5), pytest.param(2, 5, marks=pytest.mark.slow), pytest.param(10, 10, marks=pytest.mark.slow)],
)
def test_the_elbo_is_tight(D, K):
    result, modes = recover(0, K, D)
    assert modes == K
    assert result.elbo.value > -0.01
    assert result.converged


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize(("D", "K"), [(2, 5), (10, 10), (20, 10)])
def test_other_seeds_too(D, K, seed):
    result, modes = recover(seed, K, D)
    assert modes == K
    assert result.elbo.value > -0.01


@pytest.mark.parametrize(("D", "K"), [(4, 5), pytest.param(20, 10, marks=pytest.mark.slow)])
def test_all_modes_are_found_in_many_dimensions(D, K):
    result, modes = recover(0, K, D)
    assert modes == K
    assert result.elbo.value > -0.01
    weights = np.sort(np.asarray(result.mixture.weights))[::-1][:K]
    np.testing.assert_allclose(weights, 1 / K, atol=0.01)
