"""The mode search without gradients."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix import HostTarget, JaxTarget, Mixture
from natmix.diagnostics.population_search import search_without_gradients
from natmix.diagnostics.search_problem import SearchProblem

AWAY = 12.0
LOG_HALF = float(np.log(0.5))


def one(dim=2, dtype=float):
    return Mixture.full([1.0], np.zeros((1, dim)), np.eye(dim)[None]).astype(dtype)


def log_normal(x, mean=0.0):
    return -0.5 * np.sum((x - mean) ** 2, axis=1) - 0.5 * x.shape[1] * np.log(2 * np.pi)


def both(x):
    return np.logaddexp(log_normal(x), log_normal(x, AWAY)) + LOG_HALF


class Counted:
    """A batched function that counts its points and calls."""

    def __init__(self, fn):
        self.fn, self.points, self.calls = fn, 0, 0

    def __call__(self, x):
        self.points += len(x)
        self.calls += 1
        return self.fn(x)


def searched(fn, log_evidence, budget=3000, seed=0, dim=2, seen=None):
    counted = Counted(fn)
    target = HostTarget(counted, dim, batched=True)
    problem = SearchProblem(one(dim), target, one(dim), log_evidence, jax.random.key(seed), budget)
    found = search_without_gradients(problem, seen)
    assert found.evaluations == counted.points <= budget
    assert found.method == "population"
    return found, counted


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_other_of_two_gaussians(dim):
    found, counted = searched(both, LOG_HALF, dim=dim)
    (mode,) = found.missed
    np.testing.assert_allclose(mode.position, AWAY, atol=0.3)
    np.testing.assert_allclose(mode.covariance, np.eye(dim), atol=0.3)
    assert mode.share == pytest.approx(0.5, abs=0.05)
    assert mode.deficit == pytest.approx(0.5 * dim * AWAY**2, rel=0.05)
    assert found.found == len(found.hits) == 2
    assert sum(found.hits) <= found.runs
    assert counted.calls < found.evaluations / 8


@pytest.mark.parametrize("budget", [0, *range(1, 51, 7), 50, 120, 300])
def test_small_budgets_are_never_exceeded(budget):
    seen = np.full((5, 2), AWAY) + 0.1 * np.arange(5)[:, None]
    searched(both, LOG_HALF, budget)
    searched(both, LOG_HALF, budget, seen=(seen, both(seen)))


def test_the_same_key_gives_the_same_search():
    first, second = (searched(both, LOG_HALF, 1500, seed=3)[0] for _ in range(2))
    assert first[1:] == second[1:]
    for a, b in zip(first.missed, second.missed, strict=True):
        np.testing.assert_array_equal(a.position, b.position)


def test_an_exact_mixture_lacks_nothing():
    for seed in range(5):
        found, _ = searched(log_normal, 0.0, seed=seed)
        assert found.missed == ()
        assert found.hits == (found.runs,)
        assert found.new_mode_chance < 0.05


def test_points_seen_are_evidence_without_evaluations():
    x = np.random.default_rng(0).normal(size=(20, 2)) + AWAY
    found, _ = searched(both, LOG_HALF, 0, seen=(x, both(x)))
    assert len(found.missed) >= 1
    assert all(np.linalg.norm(m.position - AWAY) < 4 for m in found.missed)
    assert found.evaluations == 0
    assert searched(log_normal, 0.0, 0, seen=(x - AWAY, log_normal(x - AWAY)))[0].missed == ()


@pytest.mark.parametrize("bad", [-np.inf, np.nan, np.inf])
def test_bad_values(bad):
    def half(x):
        return np.where(x[:, 0] < -3, bad, both(x))

    found, _ = searched(half, LOG_HALF)
    assert len(found.missed) == 1
    nowhere, _ = searched(lambda x: np.full(len(x), bad), 0.0, 200)
    assert (nowhere.missed, nowhere.found, nowhere.runs) == ((), 0, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_jax_target_in_its_precision(dtype):
    def log_p(x):
        return jnp.logaddexp(-0.5 * jnp.sum(x**2), -0.5 * jnp.sum((x - AWAY) ** 2))

    target = JaxTarget(log_p, 2, values_only=True)
    log_z = float(np.log(2 * np.pi))
    problem = SearchProblem(one(dtype=dtype), target, one(dtype=dtype), log_z, jax.random.key(0), 2000)
    found = search_without_gradients(problem)
    assert len(found.missed) == 1


def test_an_executor():
    with ThreadPoolExecutor(2) as executor:
        target = HostTarget(lambda x: both(x[None])[0], 2, executor=executor)
        found = search_without_gradients(
            SearchProblem(one(), target, one(), LOG_HALF, jax.random.key(0), 1000)
        )
    assert len(found.missed) == 1


def test_an_unbounded_density_ends():
    found, _ = searched(lambda x: -2.5 * np.log(np.sum((x - AWAY) ** 2, axis=1)), 0.0, 2000)
    assert found.evaluations <= 2000
