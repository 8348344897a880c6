"""L-BFGS runs in a batch: where they end, what they cost, and how a budget ends them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from natmix import JaxTarget
from natmix.initialization.evaluator import TargetEvaluator
from natmix.initialization.lbfgs_batch import lbfgs_runs

jax.config.update("jax_enable_x64", True)


def evaluator(fn, dim, most=None, dtype=np.float64):
    return TargetEvaluator(JaxTarget(fn, dim), jax.random.key(0), jnp.dtype(dtype), most)


def gaussian(x):
    scale = jnp.arange(1.0, 1 + x.size)
    return -0.5 * jnp.sum(((x - 3) / scale) ** 2)


def student(x):
    return -3.0 * jnp.log1p(jnp.sum((x - 2) ** 2))


def banana(x):
    return -0.5 * x[0] ** 2 - 0.5 * (x[1] - x[0] ** 2) ** 2 / 0.25


@pytest.mark.parametrize(("fn", "dim", "mode"), [(gaussian, 8, 3.0), (student, 5, 2.0), (banana, 2, 0.0)])
@pytest.mark.parametrize("width", [1.0, 100.0])
def test_runs_end_at_the_mode(fn, dim, mode, width):
    starts = width * np.random.default_rng(0).normal(size=(20, dim))
    kept = starts.copy()
    paths = lbfgs_runs(evaluator(fn, dim), starts)
    np.testing.assert_array_equal(starts, kept)
    for start, path in zip(starts, paths, strict=True):
        assert path.finished
        np.testing.assert_array_equal(path.x[0], start)
        assert np.all(np.diff(path.log_density) >= 0)
        np.testing.assert_allclose(path.x[-1], mode, atol=1e-3)
        np.testing.assert_allclose(path.log_density[-1], fn(path.x[-1]), atol=1e-9)
        np.testing.assert_allclose(path.gradient[-1], jax.grad(fn)(path.x[-1]), atol=1e-9)


def test_they_agree_with_scipy_where_there_is_one_mode():
    start = np.full(8, -5.0)
    (path,) = lbfgs_runs(evaluator(gaussian, 8), start[None])
    other = minimize(lambda x: -float(gaussian(x)), start, jac=lambda x: -np.asarray(jax.grad(gaussian)(x)))
    np.testing.assert_allclose(path.x[-1], other.x, atol=1e-3)


def test_float32_ends_too():
    some = evaluator(student, 5, dtype=np.float32)
    paths = lbfgs_runs(some, 30 * np.random.default_rng(0).normal(size=(10, 5)))
    assert all(np.allclose(p.x[-1], 2, atol=0.02) for p in paths)
    assert some.evaluations < 10 * 60


def test_a_run_from_a_point_without_density_stays_there():
    def half(x):
        return jnp.where(x[0] > 0, -0.5 * jnp.sum((x - 1) ** 2), -jnp.inf)

    low, high = lbfgs_runs(evaluator(half, 2), np.array([[-1.0, 0], [2.0, 0]]))
    assert len(low.x) == 1
    assert low.log_density[-1] == -np.inf
    np.testing.assert_allclose(high.x[-1], 1, atol=1e-4)


@pytest.mark.parametrize("most", [20, 27, 60])
def test_a_budget_ends_the_runs_that_are_left(most):
    some = evaluator(student, 5, most)
    paths = lbfgs_runs(some, 30 * np.random.default_rng(0).normal(size=(20, 5)))
    assert some.evaluations <= most
    assert not all(p.finished for p in paths)
