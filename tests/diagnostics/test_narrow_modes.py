"""Narrow modes next to wide ones: what probes notice, what they cover, and what a search does with them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix import HostTarget, JaxTarget, Mixture
from natmix.diagnostics import SearchProblem, search_modes
from natmix.diagnostics.narrow_modes import Ellipses, cholesky, covered_width, probes_near, suspicious

jax.config.update("jax_enable_x64", True)


def one(dim):
    return Mixture.full([1.0], np.zeros((1, dim)), np.eye(dim)[None])


def both(dim, width, distance, share=0.6):
    """A unit Gaussian at the origin, and a mode of that width and share away from it."""
    away = np.full(dim, distance / np.sqrt(dim))
    covariances = np.stack([np.eye(dim), width**2 * np.eye(dim)])
    return Mixture.full([1 - share, share], np.stack([np.zeros(dim), away]), covariances), away


def problem(truth, target=None, **limits):
    """The search next to a fit that has the wide mode only, with the log Z that its samples show."""
    dim = truth.dim
    target = JaxTarget(truth.log_prob, dim) if target is None else target
    log_z = float(truth.log_weights[0])
    return SearchProblem(one(dim), target, one(dim), log_z, jax.random.key(0), **limits)


@pytest.mark.parametrize(("dim", "probes"), [(1, 60), (2, 600), (3, 2000), (5, 4000)])
def test_the_covered_width_is_that_which_probes_notice(dim, probes):
    rng = np.random.default_rng(dim)
    width = covered_width(dim, probes)
    modes = Ellipses(np.zeros((1, dim)), np.eye(dim)[None])
    noticed = {0.5 * width: 0, width: 0}
    trials = 200
    for _ in range(trials):
        x = probes_near(modes, probes, rng)
        direction = rng.normal(size=dim)
        centre = np.exp(rng.uniform(np.log(2), np.log(10))) * direction / np.linalg.norm(direction)
        for w in noticed:
            log_wide = -0.5 * np.sum(x**2, axis=1)
            log_narrow = -0.5 * np.sum((x - centre) ** 2, axis=1) / w**2 - dim * np.log(w)
            noticed[w] += bool(np.any(np.logaddexp(log_wide, log_narrow) - log_wide > 0.5))
    assert noticed[width] / trials == pytest.approx(0.95, abs=0.05)
    assert noticed[0.5 * width] / trials < 0.9


def test_the_covered_width_falls_with_probes_and_rises_with_dimensions():
    widths = np.array([[covered_width(d, n) for n in (0, 100, 1000, 10_000, 100_000)] for d in (2, 3, 5, 10)])
    assert np.all(np.diff(widths, axis=1) <= 0)
    assert np.all(np.diff(widths, axis=0) >= 0)
    assert np.all(widths[:, 0] == 1)
    assert covered_width(50, 100_000) == 1


def test_probes_have_the_shapes_of_their_modes():
    covariances = np.stack([np.diag([4.0, 0.01]), np.eye(2)])
    modes = Ellipses(np.array([[0.0, 0.0], [1e4, 0.0]]), covariances)
    x = probes_near(modes, 20_000, np.random.default_rng(0))
    first = x[x[:, 0] < 5e3]
    assert len(first) == 10_000
    distance = np.linalg.norm(first / [2, 0.1], axis=1)
    assert distance.min() > 0.69
    assert distance.max() < 12.01
    assert np.mean(distance < np.sqrt(0.7 * 12)) == pytest.approx(0.5, abs=0.02)


def test_suspicious_are_those_above_their_neighbours_in_distance():
    rng = np.random.default_rng(0)
    distance = rng.uniform(1, 10, 4000)
    tails = 3 * distance**1.5 + rng.normal(size=4000)  # too low everywhere, more so farther away
    assert len(suspicious(tails, distance)) == 0
    tails[[7, 11]] += [30, 60]
    assert suspicious(tails, distance).tolist() == [11, 7]
    tails[3] = np.nan
    assert suspicious(tails, distance).tolist() == [11, 7]
    assert len(suspicious(np.full(3, -np.inf), np.ones(3))) == 0
    exact = 1e-6 * rng.normal(size=4000)
    exact[5] = 0.6
    assert suspicious(exact, distance).tolist() == [5]


@pytest.mark.parametrize(("dim", "width", "distance"), [(2, 0.05, 6.0), (2, 0.1, 3.0), (3, 0.1, 5.0)])
def test_a_narrow_mode_next_to_a_wide_one_is_found(dim, width, distance):
    truth, away = both(dim, width, distance)
    runs_alone = search_modes(problem(truth), 32)
    assert not runs_alone.missed
    found = search_modes(problem(truth), 32, near_probes=40_000)
    (mode,) = found.missed
    np.testing.assert_allclose(mode.position, away, atol=0.1 * width)
    np.testing.assert_allclose(mode.covariance, width**2 * np.eye(dim), atol=0.1 * width**2)
    assert mode.share == pytest.approx(0.6, abs=0.02)


def test_an_exact_mixture_lacks_nothing_and_the_search_says_what_it_covers():
    target = JaxTarget(one(2).log_prob, 2)
    for most, width in ((0, 1.0), (4000, covered_width(2, 4000)), (10**6, 0.02)):
        asked = SearchProblem(one(2), target, one(2), 0.0, jax.random.key(1))
        found = search_modes(asked, 32, near_probes=most)
        assert found.missed == ()
        assert found.covered_width <= width
        assert found.covers_narrow_modes == (most > 0)
        assert found.near_probes <= most
        assert found.thorough


def test_tails_that_the_mixture_does_not_explain_are_no_modes():
    def student(x):
        return -4.0 * jnp.log1p(jnp.sum((x - 1) ** 2) / 5 + 0.3 * jnp.abs(x[0] * x[1]))

    asked = SearchProblem(one(2), JaxTarget(student, 2), one(2), 1.2, jax.random.key(1))
    found = search_modes(asked, 16, near_probes=5000)
    assert found.missed == ()
    assert found.near_probes == 5000


@pytest.mark.parametrize("most", [0, 1, 100, 700, 1500, 4000])
def test_budgets_are_never_exceeded(most):
    truth, _ = both(2, 0.1, 4.0)
    calls = []
    value = jax.jit(jax.vmap(truth.log_prob))
    slope = jax.jit(jax.vmap(jax.grad(truth.log_prob)))

    def counted(x):
        calls.append(len(x))
        return np.asarray(value(x))

    target = HostTarget(counted, 2, batched=True, gradient=lambda x: np.asarray(slope(x)))
    found = search_modes(problem(truth, target, max_evaluations=most), 32, near_probes=40_000, widen=True)
    assert sum(calls) == found.evaluations <= most


def test_a_narrow_mode_that_is_known_does_not_make_the_search_widen_for_ever():
    truth, _ = both(3, 0.05, 6.0)
    known = SearchProblem(truth, JaxTarget(truth.log_prob, 3), one(3), 0.0, jax.random.key(0), 60_000)
    found = search_modes(known, 32, near_probes=20_000, widen=True)
    assert found.missed == ()
    assert len(found.hits) == 1  # few runs end in the narrow one, which is no reason for more of them
    assert found.thorough
    assert found.near_probes == 20_000
    assert found.evaluations < 30_000


def test_nearly_singular_covariances_have_factors():
    v = np.array([1.0, 1e-5, 1e9])
    S = np.stack([np.outer(v, v) + 1e-20 * np.eye(3), np.diag([1.0, 1e-12, 1e12])])
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(S)
    L = cholesky(S)
    scale = v[:, None] * v
    np.testing.assert_allclose(L[0] @ L[0].T / scale, np.ones((3, 3)), rtol=1e-9)
    np.testing.assert_allclose(L[1] @ L[1].T, S[1], rtol=1e-9)
    A = np.random.default_rng(0).normal(size=(4, 4))
    np.testing.assert_allclose(cholesky(A @ A.T), np.linalg.cholesky(A @ A.T), rtol=1e-6, atol=1e-8)
