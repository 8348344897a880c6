"""The native kernels of logistic regressions and of the wine network, for every set of instructions."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plans import XLA
from scipy.special import expit

from natmix.experiments import native, problems
from natmix.experiments.problems.logistic_regression import LogisticMinibatch, LogisticPosterior
from natmix.experiments.problems.minibatch import minibatch_rows, start_and_stride
from natmix.experiments.problems.wine import DIM, FEATURES, HIDDEN, WineMinibatch
from natmix.kernels.plan import current, using

pytestmark = pytest.mark.skipif(not native.available(), reason="installed without native kernels")

TYPES = [np.float32, np.float64]
LOGISTIC = [(1, 1, 1), (5, 3, 65), (67, 31, 130), (131, 16, 70)]
"""Rows, dimensions, points."""
MINIBATCHES = [(5, 3, 5), (90, 31, 64), (40, 17, 1), (100, 16, 70), (1100, 2, 1100)]
"""Rows, dimensions, size."""
NETWORKS = [(1, 1), (50, 7), (50, 50), (140, 128)]
"""Rows, size."""
PRECISION = 0.04


def rounded(a: np.ndarray, dtype: type) -> np.ndarray:
    return a.astype(dtype).astype(float)


def close(got: object, want: np.ndarray, size: np.ndarray, dtype: type, roundings: float = 30) -> None:
    """To so many roundings of what the sums are made of."""
    assert np.asarray(got).dtype == dtype
    off = np.abs(np.asarray(got, float) - want)
    assert np.max(off / (np.finfo(dtype).eps * (size + 1e-30))) < roundings


def logistic_data(R: int, D: int, N: int, dtype: type, far: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(R + D + N)
    return rounded(rng.normal(0, far / np.sqrt(D), (N, D)), dtype), rounded(rng.normal(size=(R, D)), dtype)


def check_logistic(
    x: np.ndarray, rows: np.ndarray, scale: float, got: tuple, values: tuple, dtype: type
) -> None:
    """Against NumPy; ``rows`` are [R, D], or [N, R, D] with rows of its own for every point."""
    per_point = np.broadcast_to(rows, (len(x), *rows.shape[-2:]))
    z, size = np.einsum("nd,nrd->nr", x, per_point), np.einsum("nd,nrd->nr", np.abs(x), np.abs(per_point))
    value = -scale * np.logaddexp(0, -z).sum(axis=1) - PRECISION / 2 * np.sum(x**2, axis=1)
    p = expit(-z)
    gradient = scale * np.einsum("nr,nrd->nd", p, per_point) - PRECISION * x
    value_size = scale * (1 + p * size).sum(axis=1) + np.abs(value)
    slope_size = p + p * expit(z) * size
    gradient_size = scale * np.einsum("nr,nrd->nd", slope_size, np.abs(per_point)) + PRECISION * np.abs(x)
    close(got[0], value, value_size, dtype)
    close(got[1], gradient, gradient_size, dtype)
    assert values[1] is None
    close(values[0], value, value_size, dtype)


@pytest.mark.parametrize("far", [0.3, 300.0])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", LOGISTIC)
def test_logistic_regression(sizes: tuple[int, int, int], dtype: type, far: float) -> None:
    x, rows = logistic_data(*sizes, dtype, far)
    arrays = jnp.asarray(x, dtype), jnp.asarray(rows, dtype), PRECISION, None
    got, values = (native.logistic_regression(*arrays, gradient=g) for g in (True, False))
    check_logistic(x, rows, 1.0, got, values, dtype)


@pytest.mark.parametrize("far", [0.3, 300.0])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", MINIBATCHES)
def test_logistic_regression_on_minibatches(sizes: tuple[int, int, int], dtype: type, far: float) -> None:
    R, D, size = sizes
    x, rows = logistic_data(R, D, 11, dtype, far)
    start, stride = start_and_stride(jax.random.key(R), 11, R)
    chosen = np.asarray(minibatch_rows(start, stride, R, size))
    arrays = jnp.asarray(x, dtype), jnp.asarray(rows, dtype), PRECISION, start, stride, size, None
    got, values = (native.logistic_regression_minibatch(*arrays, gradient=g) for g in (True, False))
    check_logistic(x, rows[chosen], R / size, got, values, dtype)


def network_data(R: int, N: int, dtype: type, spread: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(R + N)
    arrays = rng.normal(0, spread, (N, DIM)), rng.normal(size=(R, FEATURES)), rng.normal(6, 1, R)
    return [rounded(a, dtype) for a in arrays]


def network(x: np.ndarray, f: np.ndarray, q: np.ndarray, R: int) -> tuple[np.ndarray, np.ndarray]:
    """The log density of one point on these rows, and its gradient, in NumPy."""
    cuts = np.cumsum([FEATURES * HIDDEN, HIDDEN, HIDDEN**2, HIDDEN, HIDDEN])
    W1, b1, W2, b2, W3, b3 = np.split(x, cuts)
    W1, W2 = W1.reshape(FEATURES, HIDDEN), W2.reshape(HIDDEN, HIDDEN)
    h1 = expit(f @ W1 + b1)
    h2 = expit(h1 @ W2 + b2)
    error = h2 @ W3 + b3 - q
    d2 = error[:, None] * W3 * h2 * (1 - h2)
    d1 = d2 @ W2.T * h1 * (1 - h1)
    parts = f.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ error, error.sum(keepdims=True)
    gradient = -2 * R / len(q) * np.concatenate([part.ravel() for part in parts]) - x
    return -R * np.mean(error**2) - 0.5 * x @ x, gradient


@pytest.mark.parametrize("spread", [1.0, 40.0])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", NETWORKS)
def test_network(sizes: tuple[int, int], dtype: type, spread: float) -> None:
    (R, size), N = sizes, 11
    x, f, q = network_data(R, N, dtype, spread)
    start, stride = start_and_stride(jax.random.key(R), N, R)
    chosen = np.asarray(minibatch_rows(start, stride, R, size))
    arrays = [jnp.asarray(a, dtype) for a in (x, f, q)]
    got, values = (native.wine_network(*arrays, start, stride, size, None, gradient=g) for g in (True, False))  # type: ignore[arg-type, call-arg, misc]
    expected = [network(x[n], f[chosen[n]], q[chosen[n]], R) for n in range(N)]
    value, gradient = (np.stack(part) for part in zip(*expected, strict=True))
    close(got[0], value, spread * np.abs(value), dtype)
    close(got[1], gradient, spread**2 * np.abs(gradient).max(axis=1, keepdims=True), dtype)
    close(values[0], value, spread * np.abs(value), dtype)


def calls(dtype: type, x: np.ndarray, count: int | None = None) -> dict[str, tuple]:
    """All three kernels at points, of which the network's have more coordinates."""
    _, rows = logistic_data(70, 5, 1, dtype, 1.0)
    weights, f, q = network_data(70, len(x), dtype)
    weights[:, :5] = x
    start, stride = start_and_stride(jax.random.key(1), len(x), 70)
    x, weights, rows, f, q = (jnp.asarray(a, dtype) for a in (x, weights, rows, f, q))  # type: ignore[assignment]
    batch = start, stride, 20, None if count is None else jnp.asarray(count)
    return {
        "logistic": native.logistic_regression(x, rows, PRECISION, batch[-1], gradient=True),  # type: ignore[arg-type]
        "minibatch": native.logistic_regression_minibatch(x, rows, PRECISION, *batch, gradient=True),  # type: ignore[arg-type]
        "network": native.wine_network(weights, f, q, *batch, gradient=True),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("dtype", TYPES)
def test_points_that_are_no_numbers(dtype: type) -> None:
    x = np.random.default_rng(0).normal(size=(70, 5)).astype(dtype)  # type: ignore[var-annotated]
    clean = calls(dtype, x)
    bits = np.dtype(dtype).str.replace("f", "u")
    x[3, 2] = np.nan
    x[65].view(bits)[1] = np.iinfo(bits).max >> 1  # a NaN with all bits set
    for name, (value, gradient) in calls(dtype, x).items():
        bad = np.isin(np.arange(70), [3, 65])
        np.testing.assert_array_equal(np.isnan(value), bad)
        np.testing.assert_array_equal(np.isnan(gradient).all(axis=1), bad)
        np.testing.assert_array_equal(value[~bad], clean[name][0][~bad])
        np.testing.assert_array_equal(gradient[~bad], clean[name][1][~bad])


@pytest.mark.parametrize("dtype", TYPES)
def test_infinite_points_have_no_density(dtype: type) -> None:
    x = np.random.default_rng(0).normal(size=(70, 5)).astype(dtype)  # type: ignore[var-annotated]
    x[3, 2], x[65, 1] = np.inf, -np.inf
    for value, gradient in calls(dtype, x).values():
        finite = ~np.isin(np.arange(70), [3, 65])
        np.testing.assert_array_equal(np.isfinite(value), finite)
        assert (value[~finite] == -np.inf).all()
        np.testing.assert_array_equal(np.isfinite(gradient).all(axis=1), finite)


def test_points_beyond_the_count_are_zero_and_never_read() -> None:
    x = np.random.default_rng(0).normal(size=(150, 5))
    every = calls(np.float64, x)
    x[66:] = np.nan
    for name, parts in calls(np.float64, x, count=66).items():
        for part, whole in zip(parts, every[name], strict=True):
            np.testing.assert_array_equal(part[:66], whole[:66])
            assert not np.any(part[66:])


@eqx.filter_jit
def evaluate(target: Any, x: jax.Array, count: jax.Array, gradient: bool, kernels: bool) -> Any:
    assert current().native == kernels
    return target.evaluate(jax.random.key(5), x, count, gradient)


NAMES = {"breast_cancer": 0.3, "german_credit_mb": 0.3, "wine": 1.0}


@pytest.mark.parametrize("name", NAMES)
def test_a_problem_is_the_same_without_them(name: str) -> None:
    """Minibatches too: the key alone decides on them."""
    target = problems.load(name, dtype=np.float64).target
    x = jnp.asarray(np.random.default_rng(0).normal(0, NAMES[name], (600, target.dim)))
    count = jnp.asarray(300)
    with_kernels, values = (evaluate(target, x, count, gradient, True) for gradient in (True, False))
    with using(XLA):
        without = evaluate(target, x, count, True, False)
    np.testing.assert_allclose(with_kernels.log_density[:300], without.log_density[:300], rtol=1e-12)
    np.testing.assert_allclose(with_kernels.gradient[:300], without.gradient[:300], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(values.log_density[:300], without.log_density[:300], rtol=1e-12)
    assert values.gradient is None


def test_few_points_are_done_by_xla() -> None:
    target = problems.load("breast_cancer", dtype=np.float64).target
    few, many = (jax.make_jaxpr(target.fn)(jnp.zeros((n, target.dim))) for n in (63, 64))
    assert "natmix_experiments_logistic_regression" not in str(few)
    assert "natmix_experiments_logistic_regression" in str(many)


def functions() -> dict[str, tuple]:
    """The problems' functions with small data, and 64 points."""
    _, rows = logistic_data(70, 5, 1, np.float64, 1.0)
    weights, f, q = (jnp.asarray(a) for a in network_data(70, 64, np.float64))
    x, rows = weights[:, :5], jnp.asarray(rows)  # type: ignore[assignment]
    key = jax.random.key(2)
    return {
        "logistic": (LogisticPosterior, rows, x),
        "minibatch": (lambda r: lambda x: LogisticMinibatch(r, 20)(key, x), rows, x),
        "network": (lambda f: lambda x: WineMinibatch(f, q, 20)(key, x), f, weights),
    }


@pytest.mark.parametrize("name", ["logistic", "minibatch", "network"])
def test_derivatives_of_every_kind(name: str) -> None:
    build, data, x = functions()[name]
    v = jnp.asarray(np.random.default_rng(3).normal(size=x.shape))

    def total(data: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(build(data)(x))

    def derivatives() -> list:
        forward = jax.jvp(build(data), (x,), (v,))
        second = jax.jvp(jax.grad(total, argnums=1), (data, x), (jnp.zeros_like(data), v))
        both = jax.grad(total, argnums=(0, 1))(data, x)
        stacked = jax.vmap(jax.value_and_grad(total, argnums=1), in_axes=(None, 0))(data, jnp.stack([x, v]))
        return jax.tree.leaves((forward, second, both, stacked))

    with_kernels = jax.jit(lambda: derivatives())()
    with using(XLA):
        without = jax.jit(lambda: derivatives())()
    for a, b in zip(with_kernels, without, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.max(np.abs(b)))


@pytest.mark.parametrize(("rows", "size"), [(569, 64), (1000, 64), (2938, 128), (1, 1)])
def test_minibatches_are_those_of_the_key(rows: int, size: int) -> None:
    key = jax.random.key(9)
    first, second = jax.random.split(key)
    start = np.asarray(jax.random.randint(first, (50, 1), 0, rows, jnp.int32))
    coprime = np.array([a for a in range(1, max(rows, 2)) if np.gcd(a, rows) == 1])
    stride = coprime[np.asarray(jax.random.randint(second, (50, 1), 0, len(coprime)))]
    want = (start + stride * np.arange(size)) % rows
    np.testing.assert_array_equal(minibatch_rows(*start_and_stride(key, 50, rows), rows, size), want)


@pytest.mark.parametrize("instructions", ["plain", "wide", "widest"])
def test_every_set_of_instructions(instructions: str) -> None:
    root = Path(__file__).parents[3]
    folders = [str(root), str(root / "tests" / "support")]
    test = "from tests.experiments.problems import test_native_targets as t"
    code = f"import sys; sys.path[:0] = {folders!r}; {test}; t.check()"
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "NATMIX_NATIVE": instructions}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "checked"


def check() -> None:
    """All kernels with the instructions of this process."""
    for dtype in TYPES:
        test_logistic_regression(LOGISTIC[2], dtype, 0.3)
        test_logistic_regression_on_minibatches(MINIBATCHES[0], dtype, 300.0)
        test_logistic_regression_on_minibatches(MINIBATCHES[1], dtype, 0.3)
        test_network(NETWORKS[1], dtype, 1.0)
        test_network(NETWORKS[3], dtype, 40.0)
        test_points_that_are_no_numbers(dtype)
    print("checked")
