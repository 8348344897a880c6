"""Mixtures at condition numbers to 1e10, scales 1e-8 to 1e8 and weights to 1e-30, beside extended precision.

The covariances are first rounded to the type under test; what is computed from them is then compared with
the same computed in `numpy.longdouble`. The error that is allowed is that of a backward stable algorithm: a
small multiple of eps * condition number, relative to the size of the exponent.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natmix import Mixture
from natmix.kernels.scores import mixture_score

pytestmark = pytest.mark.skipif(
    bool(np.finfo(np.longdouble).eps >= np.finfo(float).eps), reason="no extended precision here"
)

LONG = np.longdouble
WORST = {np.float64: 10.0, np.float32: 5.0}
"""Decimal logarithm of the largest condition number."""
FEW = [(1, 1, np.float64), (4, 3, np.float32), (4, 3, np.float64)]
MANY = [
    (1, 500, np.float32),
    (1000, 2, np.float32),
    (1000, 2, np.float64),
    (2, 500, np.float64),
    (7, 40, np.float32),
    (30, 12, np.float64),
]
SHAPES = [*FEW, *(pytest.param(*shape, marks=pytest.mark.slow) for shape in MANY)]
FACTOR = 30.0


@dataclasses.dataclass(frozen=True)
class Case:
    """A mixture, and its parameters as the type under test has them, in extended precision."""

    mixture: Mixture
    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    points: np.ndarray
    scale: float
    rounding: float
    """eps times the condition number."""

    @property
    def x(self):
        return self.points.astype(self.mixture.dtype)


def made(K, D, dtype, seed, hardness, log_scale, log_weight) -> Case:
    rng = np.random.default_rng(seed)
    condition = 10 ** (hardness * WORST[dtype] * (D > 1))
    scale = 10.0**log_scale
    turns = np.linalg.qr(rng.normal(size=(K, D, D)))[0]
    spectrum = condition ** -rng.uniform(0, 1, (K, D))
    spectrum[:, 0] = 1.0
    spectrum[:, -1] = 1 / condition
    S = (scale**2 * np.einsum("kij,kj,klj->kil", turns, spectrum, turns)).astype(dtype)
    S = (S + np.swapaxes(S, 1, 2)) / dtype(2)
    means = (3 * scale * rng.normal(size=(K, D))).astype(dtype)
    weights = (10.0 ** rng.uniform(log_weight, 0, K)).astype(dtype)
    weights[0] = 1
    mixture = Mixture.full(weights, means, S)
    near = rng.integers(K, size=9)
    steps = np.einsum("nij,nj->ni", turns[near], np.sqrt(spectrum[near]) * rng.normal(size=(9, D)))
    points = (means[near] + scale * steps).astype(dtype).astype(LONG)
    w = weights.astype(LONG)
    rounding = float(np.finfo(dtype).eps) * condition
    return Case(mixture, w / w.sum(), means.astype(LONG), S.astype(LONG), points, scale, rounding)


def cholesky(S):
    """In the precision of S, one column at a time."""
    L = np.zeros_like(S)
    for j in range(len(S)):
        column = S[j:, j] - L[j:, :j] @ L[j, :j]
        L[j:, j] = column / np.sqrt(column[0])
    return L


def solved(L, b):
    """L^-1 b for a lower triangle."""
    y = np.zeros_like(b)
    for i in range(len(L)):
        y[i] = (b[i] - L[i, :i] @ y[:i]) / L[i, i]
    return y


def component_log_densities(means, covariances, points):
    """[N, K], and the squared Mahalanobis distances."""
    log_p, squares = [], []
    for m, S in zip(means, covariances, strict=True):
        L = cholesky(S)
        y = solved(L, (points - m).T)
        square = np.sum(y**2, axis=0)
        constant = np.sum(np.log(np.diagonal(L))) + LONG(0.5) * len(m) * np.log(2 * LONG(np.pi))
        log_p.append(-square / 2 - constant)
        squares.append(square)
    return np.array(log_p).T, np.array(squares).T


def log_sum(a):
    top = a.max(axis=1, keepdims=True)
    return top[:, 0] + np.log(np.sum(np.exp(a - top), axis=1))


def log_density(weights, means, covariances, points):
    """And by how much it may be off, in units of the rounding: the exponent of the nearest component."""
    log_p, squares = component_log_densities(means, covariances, points)
    return log_sum(log_p + np.log(weights)), squares.min(axis=1) + len(means[0])


def assert_close(found, expected, size, rounding, what):
    found = np.asarray(found).astype(LONG)
    assert np.all(np.isfinite(found)), what
    allowed = FACTOR * rounding * (size + np.abs(expected))
    assert np.all(np.abs(found - expected) <= allowed), (
        f"{what}: off by {np.max(np.abs(found - expected) / allowed):.3g} of what is allowed"
    )


def check_densities(case: Case):
    expected, size = log_density(case.weights, case.means, case.covariances, case.points)
    assert_close(case.mixture.log_prob(case.x), expected, size, case.rounding, "log_prob")
    each, squares = component_log_densities(case.means, case.covariances, case.points)
    found = case.mixture.component_log_prob(case.x)
    # A distance of many widths is as uncertain as it is large; x - m is rounded beside.
    assert_close(found, each, squares + each.shape[1], case.rounding, "component_log_prob")
    shares = np.asarray(case.mixture.responsibilities(case.x), float)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-4)
    assert np.all(shares >= 0)


def check_scores(case: Case):
    """The gradient of log q in units of the width, by the inverse matrix."""
    log_p, squares = component_log_densities(case.means, case.covariances, case.points)
    log_r = log_p + np.log(case.weights)
    r = np.exp(log_r - log_sum(log_r)[:, None])
    expected = np.zeros_like(case.points)
    steepest = np.zeros(len(case.points), LONG)
    for k, (m, S) in enumerate(zip(case.means, case.covariances, strict=True)):
        L = cholesky(S)
        y = solved(L, (case.points - m).T)
        inverse = solved(L, np.eye(len(m), dtype=LONG))
        expected -= r[:, [k]] * (inverse.T @ y).T
        steepest += r[:, k] * (1 + np.sqrt(squares[:, k])) * np.sqrt(np.max(np.sum(inverse**2, axis=0)))
    q, x = case.mixture, jnp.asarray(case.x)
    log_components = q.component_log_prob(x)
    found = np.asarray(mixture_score(q.components, log_components, q.log_weights, x)).astype(LONG)
    assert np.all(np.isfinite(found))
    error = np.linalg.norm((found - expected).astype(float), axis=1)
    size = 1 + squares.min(axis=1) + len(case.means[0])
    assert np.all(error <= FACTOR * case.rounding * size * steepest)


def check_marginal(case: Case):
    D = case.mixture.dim
    dims = np.arange(D)[::-1][: max(1, D // 2)]
    expected, size = log_density(
        case.weights, case.means[:, dims], case.covariances[:, dims][:, :, dims], case.points[:, dims]
    )
    found = case.mixture.marginal(dims).log_prob(case.x[:, dims])
    assert_close(found, expected, size, case.rounding, "marginal")


def check_conditional(case: Case):
    """By q(x) = q(x_given) q(x_rest | x_given): all of them at the same points."""
    D = case.mixture.dim
    if D == 1:
        return
    dims = list(range(min(3, D - 1)))
    rest = [d for d in range(D) if d not in dims]
    whole, size = log_density(case.weights, case.means, case.covariances, case.points)
    part, size_of_part = log_density(
        case.weights, case.means[:, dims], case.covariances[:, dims][:, :, dims], case.points[:, dims]
    )
    for i in range(3):
        given_values = {d: float(case.x[i, d]) for d in dims}
        found = case.mixture.condition(given_values).log_prob(case.x[i : i + 1, rest])
        assert_close(found, (whole - part)[i : i + 1], (size + size_of_part)[i], case.rounding, "condition")


def check_affine(case: Case, seed: int):
    """A rotation with a change of scale, and a shift."""
    rng = np.random.default_rng(seed)
    D, dtype = case.mixture.dim, case.mixture.dtype
    factor = 10 ** rng.uniform(-3, 3)
    A = (np.linalg.qr(rng.normal(size=(D, D)))[0] * factor).astype(dtype)
    shift = (factor * case.scale * rng.normal(size=D)).astype(dtype)
    long_A = A.astype(LONG)
    means = case.means @ long_A.T + shift.astype(LONG)
    covariances = long_A @ case.covariances @ long_A.T
    points = (case.points @ long_A.T + shift.astype(LONG)).astype(dtype)
    expected, size = log_density(case.weights, means, covariances, points.astype(LONG))
    # The new points are rounded in units of the shift and the means, which are widths away.
    assert_close(case.mixture.affine(A, shift).log_prob(points), expected, 4 * size, case.rounding, "affine")


def check_product(case: Case):
    """log q(x) + log N(x; m, s) is that of the product and its normaliser."""
    D, dtype = case.mixture.dim, case.mixture.dtype
    m, variance = case.x[0], np.full(D, case.scale**2, dtype)
    product, log_normaliser = case.mixture.product(m, np.diag(variance).astype(dtype))
    q, size = log_density(case.weights, case.means, case.covariances, case.points)
    g, squares = component_log_densities(
        m.astype(LONG)[None], np.diag(variance.astype(LONG))[None], case.points
    )
    found = np.asarray(product.log_prob(case.x)).astype(LONG) + LONG(float(log_normaliser))
    size = size + squares[:, 0] + D + np.abs(LONG(float(log_normaliser)))
    assert_close(found, q + g[:, 0], 4 * size, case.rounding, "product")


def check_draws(case: Case, seed: int):
    """Whitened by extended precision they are standard normal."""
    draws, components = case.mixture.sample_with_components(400, key=seed)
    x, source = np.asarray(draws).astype(LONG), np.asarray(components)
    assert np.all(np.isfinite(x))
    expected = case.weights[source].astype(float)
    assert np.all(expected > 1e-9), "a component of negligible weight was drawn"
    k = np.bincount(source).argmax()
    mine = x[source == k]
    y = solved(cholesky(case.covariances[k]), (mine - case.means[k]).T).astype(float)
    # The mean is far from 0 in units of the narrowest width: draws are rounded there.
    blur = 1 + 10 * case.rounding * np.sqrt(len(y))
    n = mine.shape[0]
    assert np.all(np.abs(y.mean(axis=1)) <= 6 * blur / np.sqrt(n))
    assert abs(np.mean(y**2) - 1) <= 6 * blur**2 * np.sqrt(2 / y.size) + blur**2 - 1


def check_moments(case: Case):
    mean = np.asarray(case.mixture.mean()).astype(LONG)
    covariance = np.asarray(case.mixture.covariance()).astype(LONG)
    expected = case.weights @ case.means
    centred = case.means - expected
    spread = np.einsum("k,kij->ij", case.weights, case.covariances)
    spread += np.einsum("k,ki,kj->ij", case.weights, centred, centred)
    eps = np.finfo(case.mixture.dtype).eps * 30 * case.mixture.num_components
    assert np.max(np.abs(mean - expected)) <= eps * np.max(np.abs(case.means))
    assert np.max(np.abs(covariance - spread)) <= eps * (np.max(case.means**2) + np.max(np.abs(spread)))


def check(case: Case, seed: int):
    check_densities(case)
    check_scores(case)
    check_marginal(case)
    check_conditional(case)
    check_affine(case, seed)
    check_product(case)
    check_draws(case, seed)
    check_moments(case)


@pytest.mark.parametrize(("K", "D", "dtype"), SHAPES)
def test_the_algebra_holds_at_the_limits_of_the_type(K, D, dtype):
    """Many examples of few components in few dimensions; three of the large ones."""

    @settings(deadline=None, max_examples=8 if K * D < 20 else 3, derandomize=True, database=None)
    @given(
        seed=st.integers(0, 10_000),
        hardness=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
        log_scale=st.sampled_from([-8.0, -3.0, 0.0, 4.0, 8.0]),
        log_weight=st.sampled_from([0.0, -10.0, -30.0]),
    )
    def holds(seed, hardness, log_scale, log_weight):
        check(made(K, D, dtype, seed, hardness, log_scale, log_weight), seed)

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_more_examples(dtype, native, monkeypatch):
    """With the native kernels and with XLA's."""
    if not native:
        monkeypatch.setenv("NATMIX_NATIVE", "0")
        jax.clear_caches()

    @settings(deadline=None, max_examples=300, derandomize=True, database=None)
    @given(
        seed=st.integers(0, 10**6),
        hardness=st.floats(0, 1),
        log_scale=st.floats(-8, 8),
        log_weight=st.floats(-30, 0),
    )
    def holds(seed, hardness, log_scale, log_weight):
        check(made(5, 4, dtype, seed, hardness, log_scale, log_weight), seed)

    holds()
