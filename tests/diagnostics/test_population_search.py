"""The mode search without gradients."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix import HostTarget, JaxTarget, Mixture
from natmix.diagnostics.known_modes import KnownModes
from natmix.diagnostics.mode_search import ModeSearch
from natmix.diagnostics.population_probes import Excess, Probes, chosen_starts
from natmix.diagnostics.population_search import search_without_gradients
from natmix.diagnostics.quadratic_fit import MARGIN, NARROW_MARGIN, fitted_gaussian
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


@pytest.mark.parametrize(("dim", "covered"), [(2, True), (12, False)])
def test_it_says_down_to_which_width_modes_would_have_been_found(dim, covered):
    means = np.stack([np.zeros(dim), np.full(dim, AWAY)])
    exact = Mixture.full([0.5, 0.5], means, np.broadcast_to(np.eye(dim), (2, dim, dim)))
    problem = SearchProblem(
        exact, HostTarget(both, dim, batched=True), one(dim), 0.0, jax.random.key(0), 3000
    )
    found = search_without_gradients(problem)
    assert not found.missed
    assert found.thorough
    assert found.covers_narrow_modes == covered
    # In D dimensions a mode r times as wide gets r^D of the hits; none of three is seen with probability 5%.
    assert np.exp(-min(found.hits) * found.covered_width**dim) == pytest.approx(0.05, rel=0.3)


def test_an_unbounded_density_ends():
    found, _ = searched(lambda x: -2.5 * np.log(np.sum((x - AWAY) ** 2, axis=1)), 0.0, 2000)
    assert found.evaluations <= 2000


# Probes -------------------------------------------------------------------------------------------


def log_student(x, mean=0.0, dof=5.0):
    return -0.5 * (dof + x.shape[1]) * np.log1p(np.sum((x - mean) ** 2, axis=1) / dof)


STUDENT_2D = -float(np.log(2 * np.pi))  # log density of Student's t at its centre in 2 dimensions


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_a_search_that_expects_nothing_new_ends_by_itself(dim):
    """Probes that the mixture explains are enough; no run is started."""
    found, _ = searched(log_normal, 0.0, budget=20_000, dim=dim)
    assert found.evaluations <= 700 * dim
    assert found.new_mode_chance <= 0.01
    assert found.thorough


def test_a_mode_that_its_neighbour_hides_from_afar():
    """Two heavy-tailed modes are 40 widths apart and thousands from the third; one of the two is missing."""
    means = np.array([[0.0, 0.0], [3000.0, 1000.0], [3040.0, 1000.0]])

    def three(x):
        each = [log_student(x, mean) for mean in means]
        return np.logaddexp.reduce(each) + STUDENT_2D - np.log(3)

    scales = np.array([0.4, 0.8, 1.4, 3.5])  # these Gaussians together are about Student's t
    known = Mixture.full(
        np.ones(8) / 8, np.repeat(means[:2], 4, axis=0), np.tile(scales[:, None, None] * np.eye(2), (2, 1, 1))
    )
    for seed in range(3):
        target = HostTarget(three, 2, batched=True)
        problem = SearchProblem(known, target, one(), float(np.log(2 / 3)), jax.random.key(seed), 20_000)
        found = search_without_gradients(problem)
        assert min(np.linalg.norm(m.position - means[2]) for m in found.missed) < 2
        assert found.evaluations <= 20_000


def test_what_explains_a_probe():
    known = KnownModes(one(), LOG_HALF)
    x = np.concatenate([np.random.default_rng(0).normal(size=(50, 2)), [[AWAY - 3, AWAY - 3], [-30.0, 0.0]]])
    exact = Excess(known, x, both(x), 1e-16)
    assert exact.open.tolist() == [False] * 50 + [True, False]
    assert np.argmax(exact.ratio) == 50
    # In the far field a covariance that is off by 5% is no sign of another mode.
    wide = Excess(known, x, both(x) + 0.05 * 0.5 * np.sum(x**2, axis=1), 1e-16)
    assert not wide.open[51]
    # Rounding is none either.
    assert not Excess(known, x, both(x) + np.where(np.arange(52) == 51, 60.0, 0), 0.01).open[51]


def test_probes_are_spread_around_region_modes_and_all_of_them():
    rng = np.random.default_rng(0)
    mixture = Mixture.full([0.5, 0.5], [[0.0, 0.0], [AWAY, AWAY]], np.stack([np.eye(2)] * 2))
    known = KnownModes(mixture, 0.0)
    x, covariances, near = Probes(one(), mixture, rng).drawn(3000, known.ellipses())
    assert near.mean() == pytest.approx(1 / 3, abs=0.05)
    widths = np.sqrt(covariances[near][:, 0, 0])
    assert set(np.round(widths)) == {3, 10, 30}
    nearest = np.min([np.linalg.norm(x - m, axis=1) for m in ([0, 0], [AWAY, AWAY])], axis=0)
    assert (nearest[near] < 150).all()
    assert nearest[~near].max() > 150


def test_half_of_the_starts_are_the_best_ones():
    x = np.repeat(np.arange(20.0), 2).reshape(20, 2) * 10
    x = np.concatenate([x, x + 1])
    log_p = np.concatenate([np.zeros(20), np.full(20, -1.0)])
    log_p[20:] -= np.arange(20)
    ratio = np.arange(40.0)
    chosen = chosen_starts(x, log_p, ratio, 4, np.random.default_rng(0))
    assert len(chosen) == len(set(chosen.tolist())) == 4
    assert {18, 19} <= set(chosen.tolist())
    assert chosen_starts(x[:2], log_p[:2], ratio[:2], 4, np.random.default_rng(0)).tolist() == [1, 0]


def test_a_search_that_still_expects_new_modes_is_not_thorough():
    few = ModeSearch((), 1, 20, 100, (20,), "population")
    assert few.ended_early
    assert not few.thorough
    assert ModeSearch((), 1, 200, 100, (200,), "population").thorough
    assert few._replace(method="L-BFGS").thorough


def test_the_narrow_margin_is_for_heavy_tails():
    x = np.random.default_rng(0).normal(size=(190, 2)) * np.repeat([1.0, 10.0], [40, 150])[:, None]
    spread = [
        np.trace(fitted_gaussian(x, log_student(x), x[0], np.eye(2), m)[1]) for m in (MARGIN, NARROW_MARGIN)
    ]
    assert spread[1] < 0.5 * spread[0]
    x /= 4
    for margin in (MARGIN, NARROW_MARGIN):
        mean, covariance = fitted_gaussian(x, log_normal(x), x[0], np.eye(2), margin)
        np.testing.assert_allclose(mean, 0, atol=1e-6)
        np.testing.assert_allclose(covariance, np.eye(2), atol=1e-6)
