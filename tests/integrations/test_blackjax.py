"""natmix as an algorithm of BlackJAX: pure functions, the structure of the position, room for components."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from natmix.integrations.blackjax import gmmvi

base = pytest.importorskip("blackjax.base")
START = {"a": 0.0, "b": np.zeros(2)}
KEYS = jax.random.split(jax.random.key(0), 60)


def two_modes(position):
    x = jnp.append(position["b"], position["a"])
    left = jnp.log(0.7) + jnp.sum(norm.logpdf(x, -2))
    return jnp.logaddexp(left, jnp.log(0.3) + jnp.sum(norm.logpdf(x, 2)))


@pytest.fixture(scope="module")
def algorithm():
    return gmmvi(two_modes, max_components=4, init_components=3, init_scale=3.0)


@pytest.fixture(scope="module")
def run(algorithm):
    """A whole run as one program."""

    def body(state, key):
        state, info = algorithm.step(key, state)
        return state, (info.elbo, info.iteration.components)

    return jax.lax.scan(body, algorithm.init(START), KEYS)


def test_it_is_an_algorithm_of_blackjax(algorithm):
    assert isinstance(algorithm, base.VIAlgorithm)


def test_a_scan_finds_both_modes_and_their_normalising_constant(algorithm, run):
    state, (elbo, components) = run
    assert float(elbo[-1]) == pytest.approx(0, abs=0.02)
    assert int(components.max()) <= 4
    draws = algorithm.sample(jax.random.key(1), state, 4000)
    assert {name: value.shape for name, value in draws.items()} == {"a": (4000,), "b": (4000, 2)}
    assert np.mean(draws["a"] < 0) == pytest.approx(0.7, abs=0.04)


def test_steps_follow_from_their_keys_of_either_kind(algorithm, run):
    state, _ = run
    step = jax.jit(algorithm.step)
    key = jax.random.key(5)
    one, info = step(key, state)
    two, same = step(jax.random.key_data(key), state)
    _, different = step(jax.random.key(6), state)
    assert float(info.elbo) == float(same.elbo) != float(different.elbo)
    np.testing.assert_array_equal(one.mixture.means, two.mixture.means)
    kept = jax.tree.map(lambda new, old: new.dtype == old.dtype and new.shape == old.shape, one, state)
    assert all(jax.tree.leaves(kept))


def test_starts_are_mapped(algorithm):
    positions = {"a": jnp.arange(2.0), "b": jnp.zeros((2, 2))}
    states = jax.vmap(algorithm.init)(positions)
    np.testing.assert_array_equal(states.mixture.components.mean[:, 0, 0], positions["a"])


def test_arguments_that_cannot_be_used():
    with pytest.raises(ValueError, match="8 init_components do not fit into max_components=4"):
        gmmvi(two_modes, max_components=4, init_components=8)
    with pytest.raises(ValueError, match="init_scale must be a positive number"):
        gmmvi(two_modes, init_scale=0.0)
    with pytest.raises(ValueError, match="covariance must be"):
        gmmvi(two_modes, covariance="fill")
