"""The mixture against SciPy, its own definitions, and numerical integration."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from natmix import Estimate, Mixture
from natmix._estimate import mean_estimate
from natmix._keys import as_key, draw_rows
from natmix.gaussians import FullGaussians

jax.config.update("jax_enable_x64", True)

K, D, N = 3, 3, 50
close = partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-8)


def full(seed: int = 0, K: int = K, D: int = D, dtype: Any = np.float64) -> Mixture:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(K, D, D))
    S = A @ np.swapaxes(A, 1, 2) + 0.3 * np.eye(D)
    return Mixture.full(rng.uniform(0.5, 2, K), rng.normal(size=(K, D)).astype(dtype) * 2, S)


def diagonal(seed: int = 0, K: int = K, D: int = D, dtype: Any = np.float64) -> Mixture:
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(K, D)).astype(dtype) * 2
    return Mixture.diagonal(rng.uniform(0.5, 2, K), means, rng.uniform(0.2, 3, (K, D)))


def dense(q: Mixture) -> Mixture:
    return Mixture.full(q.weights, q.means, q.covariances)


def points(seed: int = 7, n: int = N, D: int = D) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, D)) * 2


def with_absent(q: Mixture) -> Mixture:
    """The same distribution, with an absent component in front."""
    w = np.concatenate([[0.0], q.weights])
    means = np.concatenate([q.means[:1] + 50, q.means])
    if q.is_diagonal:
        variances = np.diagonal(q.covariances, axis1=1, axis2=2)
        return Mixture.diagonal(w, means, np.concatenate([variances[:1] * 2, variances]))
    return Mixture.full(w, means, np.concatenate([q.covariances[:1] * 2, q.covariances]))


REPRESENTATIONS = pytest.mark.parametrize("make", [full, diagonal])


# Densities ------------------------------------------------------------------------------------------


@REPRESENTATIONS
def test_densities_match_scipy(make: Callable[..., Mixture]) -> None:
    q, x = make(), points()
    parts = [stats.multivariate_normal(m, S).logpdf(x) for m, S in zip(q.means, q.covariances, strict=True)]
    joint = np.stack(parts, axis=1) + np.log(q.weights)
    close(q.component_log_prob(x), np.stack(parts, axis=1))
    close(q.log_prob(x), logsumexp(joint, axis=1))
    close(q.responsibilities(x), np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))
    close(np.sum(q.weights), 1)


def test_densities_keep_leading_axes() -> None:
    q, x = full(), points(n=24)
    expected = q.log_prob(x)
    close(q.log_prob(x.reshape(2, 3, 4, D)), expected.reshape(2, 3, 4))
    close(q.log_prob(x[0]), expected[0])
    assert q.log_prob(x[0]).shape == ()
    assert q.component_log_prob(x[0]).shape == (K,)
    assert q.responsibilities(x.reshape(4, 6, D)).shape == (4, 6, K)
    assert q.log_prob(np.zeros((0, D))).shape == (0,)


def test_far_away_points_have_finite_densities_and_responsibilities() -> None:
    q = full(dtype=np.float32)
    x = np.full((1, D), 1e4, np.float32)
    assert np.isfinite(q.log_prob(x)).all()
    close(np.sum(q.responsibilities(x)), 1, rtol=1e-6)


def test_log_prob_is_a_normalised_density() -> None:
    q = full(D=2)
    side = np.linspace(-25, 25, 501)
    grid = np.stack(np.meshgrid(side, side), axis=-1)
    close(np.sum(np.exp(q.log_prob(grid))) * (side[1] - side[0]) ** 2, 1, rtol=1e-6)


@REPRESENTATIONS
def test_an_absent_component_takes_part_in_nothing(make: Callable[..., Mixture]) -> None:
    q = make()
    padded = with_absent(q)
    x = points()
    close(padded.log_prob(x), q.log_prob(x))
    close(jax.grad(padded.log_prob)(x[0]), jax.grad(q.log_prob)(x[0]))
    close(padded.responsibilities(x)[:, 0], 0)
    close(padded.mean(), q.mean())
    close(padded.covariance(), q.covariance())
    close(padded.quantile([0.1, 0.9]), q.quantile([0.1, 0.9]))
    close(padded.top(K).log_prob(x), q.log_prob(x))
    rows = padded.sample_with_components(0, 1000)[1]
    assert 0 not in np.asarray(rows)
    alone = with_absent(make(K=1))
    assert alone.entropy().standard_error == 0
    assert alone.kl(make(K=1)).value == pytest.approx(0, abs=1e-12)


# Sampling -------------------------------------------------------------------------------------------


@REPRESENTATIONS
def test_samples_have_the_right_moments_and_shares(make: Callable[..., Mixture]) -> None:
    q, n = make(), 40_000
    x, rows = (np.asarray(a) for a in q.sample_with_components(1, n))
    counts = np.bincount(rows, minlength=K)
    assert stats.chisquare(counts, n * np.asarray(q.weights)).pvalue > 1e-4
    standard_error = np.sqrt(np.diag(q.covariance()) / n)
    assert np.all(np.abs(x.mean(0) - q.mean()) < 5 * standard_error)
    np.testing.assert_allclose(np.cov(x.T), q.covariance(), atol=0.05 * np.max(q.covariance()))
    for k in range(K):  # each labelled sample is a draw from its component: |y|^2 is chi-square
        y = np.linalg.solve(np.linalg.cholesky(q.covariances[k]), (x[rows == k] - q.means[k]).T)
        assert stats.kstest(np.sum(y**2, axis=0), stats.chi2(D).cdf).pvalue > 1e-4


def test_samples_depend_on_the_key_alone() -> None:
    q = full()
    np.testing.assert_array_equal(q.sample(3, 10), q.sample(jax.random.key(3), 10))
    np.testing.assert_array_equal(q.sample(3, 10), q.sample(jax.random.PRNGKey(3), 10))
    np.testing.assert_array_equal(q.sample(3, 10), jax.jit(lambda q: q.sample(3, 10))(q))
    assert not np.allclose(q.sample(3, 10), q.sample(4, 10))
    assert q.sample(0).shape == (1, D)
    assert q.sample(0, 0).shape == (0, D)


def test_padding_does_not_change_the_rows_drawn() -> None:
    log_w = jnp.log(jnp.array([0.2, 0.5, 0.3]))
    padded = jnp.concatenate([log_w, jnp.full(5, -jnp.inf)])
    np.testing.assert_array_equal(draw_rows(as_key(0), log_w, 2000), draw_rows(as_key(0), padded, 2000))


@pytest.mark.parametrize("u", [0.0, 1.0])
def test_extreme_uniform_numbers_draw_no_absent_component(u: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.full(shape, u, dtype))
    log_w = jnp.log(jnp.array([0.0, 0.4, 0.6, 0.0]))
    np.testing.assert_array_equal(draw_rows(as_key(0), log_w, 2), [1 if u == 0 else 2] * 2)


# Moments and information ----------------------------------------------------------------------------


@REPRESENTATIONS
def test_moments_match_their_definitions(make: Callable[..., Mixture]) -> None:
    q = make()
    w, m, S = (np.asarray(a) for a in (q.weights, q.means, q.covariances))
    mean = w @ m
    second = np.einsum("k,kij->ij", w, S + np.einsum("ki,kj->kij", m, m))
    close(q.mean(), mean)
    close(q.covariance(), second - np.outer(mean, mean))
    close(q.std(), np.sqrt(np.diag(q.covariance())))


@REPRESENTATIONS
def test_quantiles_invert_the_marginal_distribution_functions(make: Callable[..., Mixture]) -> None:
    q = make()
    p = np.array([[1e-6, 0.05], [0.5, 0.999]])
    x = np.asarray(q.quantile(p))
    assert x.shape == (2, 2, D)
    std = np.sqrt(np.diagonal(q.covariances, axis1=1, axis2=2))
    cdf = np.einsum("k,pqkd->pqd", q.weights, stats.norm.cdf(x[:, :, None], q.means, std))
    close(cdf, np.broadcast_to(p[..., None], cdf.shape), atol=1e-12, rtol=1e-9)
    close(q.quantile(0.5), x[1, 0])


def test_quantiles_of_one_gaussian_and_of_distant_components() -> None:
    q = Mixture.diagonal([1.0], [[1.0]], [[4.0]])
    close(q.quantile([0.025, 0.975])[:, 0], stats.norm(1, 2).ppf([0.025, 0.975]))
    far = Mixture.diagonal([0.5, 0.5], np.array([[-1e6], [1e6]], np.float32), [[1.0], [1.0]])
    close(far.quantile([0.25, 0.75])[:, 0], [-1e6, 1e6], rtol=1e-6)


@REPRESENTATIONS
def test_entropy_and_kl_are_exact_for_one_gaussian(make: Callable[..., Mixture]) -> None:
    p, q = make(1, K=1), make(2, K=1)
    expected = stats.multivariate_normal(p.means[0], p.covariances[0]).entropy()
    assert p.entropy() == (pytest.approx(expected), 0)
    S, C = np.asarray(p.covariances[0]), np.asarray(q.covariances[0])
    d = np.asarray(q.means[0] - p.means[0])
    kl = 0.5 * (
        np.trace(np.linalg.solve(C, S))
        + d @ np.linalg.solve(C, d)
        - D
        + np.log(np.linalg.det(C) / np.linalg.det(S))
    )
    for a in (p, dense(p)):
        for b in (q, dense(q)):
            assert a.kl(b) == (pytest.approx(kl), 0)
    assert p.kl(p).value == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("dim", [1, 2])
def test_entropy_and_kl_match_numerical_integration(dim: int) -> None:
    p, q = full(1, D=dim), diagonal(2, D=dim)
    side = np.linspace(-25, 25, 801)
    grid = np.stack(np.meshgrid(*[side] * dim), axis=-1).reshape(-1, dim)
    volume = (side[1] - side[0]) ** dim
    log_p, log_q = np.asarray(p.log_prob(grid)), np.asarray(q.log_prob(grid))
    for estimate, exact in [
        (p.entropy(0, 50_000), -np.sum(np.exp(log_p) * log_p) * volume),
        (p.kl(q, 0, 50_000), np.sum(np.exp(log_p) * (log_p - log_q)) * volume),
    ]:
        assert 0 < estimate.standard_error < 0.05
        assert abs(estimate.value - exact) < 5 * estimate.standard_error


def test_mean_estimate() -> None:
    values = np.random.default_rng(0).normal(size=100)
    estimate = mean_estimate(jnp.array(values))
    assert estimate == (pytest.approx(values.mean()), pytest.approx(stats.sem(values)))
    assert mean_estimate(jnp.ones(1)).standard_error == np.inf
    assert str(Estimate(1.23456, 0.0123)) == "1.235 ± 0.012"


# Marginal and conditional distributions -------------------------------------------------------------


@REPRESENTATIONS
def test_marginals_take_the_dimensions_in_order(make: Callable[..., Mixture]) -> None:
    q = make()
    m = q.marginal([2, 0])
    close(m.means, q.means[:, [2, 0]])
    close(m.covariances, np.asarray(q.covariances)[:, [2, 0]][:, :, [2, 0]])
    assert m.is_diagonal == q.is_diagonal
    x = points()
    close(q.marginal(-1).log_prob(x[:, [2]]), q.marginal([2]).log_prob(x[:, [2]]))
    close(q.marginal(np.array([2, 1, 0])).log_prob(x[:, ::-1]), q.log_prob(x))


@settings(deadline=None, max_examples=8)
@given(data=st.data(), seed=st.integers(0, 1000), make=st.sampled_from([full, diagonal]))
def test_joint_is_marginal_times_conditional(
    data: st.DataObject, seed: int, make: Callable[..., Mixture]
) -> None:
    dim = 4
    q = make(seed, D=dim)
    order = data.draw(st.permutations(range(dim)))
    fixed = order[: data.draw(st.integers(1, dim - 1))]
    negative = data.draw(st.booleans())
    free = sorted(set(range(dim)) - set(fixed))
    x = points(seed, 5, dim)
    b = q.condition({d - dim * negative: x[0, d] for d in fixed})
    assert b.is_diagonal == q.is_diagonal
    x[:, fixed] = x[0, fixed]
    close(b.log_prob(x[:, free]), q.log_prob(x) - q.marginal(fixed).log_prob(x[:, fixed]))


def test_conditioning_in_steps_is_conditioning_at_once() -> None:
    q, x = full(), points()
    a = q.condition({0: 0.3}).condition({1: -0.2})
    b = q.condition({2: -0.2, 0: 0.3})
    close(a.log_prob(x[:, :1]), b.log_prob(x[:, :1]))
    assert q.condition({}) is q


@REPRESENTATIONS
def test_conditioning_under_vmap(make: Callable[..., Mixture]) -> None:
    q, values, x = make(), points()[:5, 0], points()[:, :2]
    batched = jax.vmap(lambda v: q.condition({2: v}).log_prob(x))(values)
    close(batched[3], q.condition({2: values[3]}).log_prob(x))


# Affine maps ----------------------------------------------------------------------------------------


@REPRESENTATIONS
@pytest.mark.parametrize("matrix", [2.0, -0.5, [1.0, -2.0, 3.0], "square"])
def test_affine_changes_variables(make: Callable[..., Mixture], matrix: Any) -> None:
    q, x, b = make(), points(), np.array([1.0, 2.0, -3.0])
    A = np.random.default_rng(3).normal(size=(D, D)) if isinstance(matrix, str) else np.asarray(matrix)
    M = A if A.ndim == 2 else np.diag(np.broadcast_to(A, (D,)))
    image = q.affine(A, b)
    close(image.log_prob(x @ M.T + b), q.log_prob(x) - np.linalg.slogdet(M)[1])
    assert image.is_diagonal == (q.is_diagonal and A.ndim < 2)
    assert np.all(np.isfinite(image.components.half_log_det()))


@REPRESENTATIONS
def test_affine_onto_fewer_dimensions(make: Callable[..., Mixture]) -> None:
    q = make()
    A = np.random.default_rng(3).normal(size=(2, D))
    image = q.affine(A, 1.0)
    close(image.mean(), A @ np.asarray(q.mean()) + 1)
    close(image.covariance(), A @ np.asarray(q.covariance()) @ A.T)
    close(q.affine(np.eye(D)[[2, 0]]).log_prob(points(D=2)), q.marginal([2, 0]).log_prob(points(D=2)))


@REPRESENTATIONS
def test_affine_accepts_wildly_different_units(make: Callable[..., Mixture]) -> None:
    q = make(dtype=np.float32)
    scale = np.array([1e-10, 1.0, 1e10], np.float32)
    np.testing.assert_allclose(q.affine(scale).std(), scale * np.asarray(q.std()), rtol=1e-5)
    np.testing.assert_allclose(q.affine(np.diag(scale)).std(), scale * np.asarray(q.std()), rtol=1e-5)


# Products -------------------------------------------------------------------------------------------


@REPRESENTATIONS
@pytest.mark.parametrize("covariance", [0.7, [0.5, 1.0, 2.0], "full"])
def test_product_is_the_pointwise_product(make: Callable[..., Mixture], covariance: Any) -> None:
    q, x, m = make(), points(), np.array([0.5, -1.0, 2.0])
    C = np.asarray(full(9).covariances[0]) if isinstance(covariance, str) else np.asarray(covariance)
    S = C if C.ndim == 2 else np.diag(np.broadcast_to(C, (D,)))
    posterior, log_z = q.product(m, C)
    close(posterior.log_prob(x) + log_z, q.log_prob(x) + stats.multivariate_normal(m, S).logpdf(x))
    close(np.sum(posterior.weights), 1)
    assert posterior.is_diagonal == (q.is_diagonal and C.ndim < 2)


def test_float32_product_of_a_vague_prior_and_a_sharp_likelihood() -> None:
    q = Mixture.full(np.ones(2), np.zeros((2, D), np.float32), np.stack([1e8 * np.eye(D), 1e6 * np.eye(D)]))
    posterior, _ = q.product(3.0, 1e-6 * (np.eye(D) + 0.5))
    np.testing.assert_allclose(posterior.covariances[0], 1e-6 * (np.eye(D) + 0.5), rtol=1e-4, atol=1e-10)
    np.testing.assert_allclose(posterior.means, np.full((2, D), 3.0), rtol=1e-6)


# Accuracy in float32 --------------------------------------------------------------------------------


def ill_conditioned(dim: int = 6, condition: float = 1e6) -> tuple[Mixture, Mixture]:
    """One mixture in float32 and in float64; covariances without preferred axes."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(K, dim, dim)))[0]
    S = (Q * np.geomspace(1, 1 / condition, dim)) @ np.swapaxes(Q, 1, 2)
    L = jnp.array(np.linalg.cholesky(S), jnp.float32)
    parts = FullGaussians.from_scale_tril(jnp.array(rng.normal(size=(K, dim)), jnp.float32), L)
    single = Mixture(jax.nn.log_softmax(jnp.zeros(K, jnp.float32)), parts)
    return single, single.astype(jnp.float64)


OPERATIONS: dict[str, Callable[[Mixture], Mixture]] = {
    "itself": lambda q: q,
    "marginal": lambda q: q.marginal([4, 1, 0, 5]),
    "condition": lambda q: q.condition({3: 0.1, 1: 0.2}),
    "affine": lambda q: q.affine(np.random.default_rng(1).normal(size=(6, 6)), 1.0),
    "product": lambda q: q.product(0.3, 0.5)[0],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_float32_operations_on_ill_conditioned_mixtures(name: str) -> None:
    single, double = (OPERATIONS[name](q) for q in ill_conditioned())
    assert single.dtype == jnp.float32
    # In whitened coordinates, where every direction counts the same.
    L = np.asarray(double.components.scale_tril)
    ratio = np.linalg.solve(L, np.asarray(single.components.scale_tril, np.float64))
    eye = np.broadcast_to(np.eye(single.dim), ratio.shape)
    np.testing.assert_allclose(ratio, eye, atol=2e-3)
    shift = np.linalg.solve(L, np.asarray(single.means - double.means)[..., None])
    np.testing.assert_allclose(shift, np.zeros_like(shift), atol=2e-2)


def test_float32_kl_of_ill_conditioned_gaussians() -> None:
    single, double = ill_conditioned()
    p, q = (Mixture(jnp.zeros(1, m.dtype), m.components.take(jnp.array([0]))) for m in (single, double))
    assert p.kl(p).value == pytest.approx(0, abs=1e-2)
    assert p.kl(q).value == pytest.approx(0, abs=1e-6)


# Choosing components, types, pytrees ----------------------------------------------------------------


@REPRESENTATIONS
def test_top_keeps_the_heaviest(make: Callable[..., Mixture]) -> None:
    q = make()
    top, order = q.top(2), np.argsort(-np.asarray(q.weights))[:2]
    close(top.weights, np.asarray(q.weights)[order] / np.sum(np.asarray(q.weights)[order]))
    close(top.means, q.means[order])
    close(q.top(10).log_prob(points()), q.log_prob(points()))


@REPRESENTATIONS
def test_types_follow_the_means(make: Callable[..., Mixture]) -> None:
    q32, q64 = make(dtype=np.float32), make()
    assert (q32.dtype, q64.dtype) == (jnp.float32, jnp.float64)
    assert {a.dtype for a in jax.tree.leaves(q32)} == {jnp.dtype("float32")}
    outputs = [q32.log_prob(points()), q32.sample(0, 2), q32.mean(), q32.std(), q32.quantile(0.5)]
    assert {a.dtype for a in outputs} == {jnp.dtype("float32")}
    assert Mixture.diagonal([1], [[0, 1]], [[1, 2]]).dtype == jnp.float64
    up = q32.astype(jnp.float64)
    exact = dense(up).component_log_prob(points())
    close(up.component_log_prob(points()), exact)  # L^-1 is as accurate as the new type
    assert up.astype(jnp.float64) is up
    close(q64.astype(jnp.float32).log_prob(points()), q64.log_prob(points()), rtol=1e-4)


@REPRESENTATIONS
def test_a_mixture_is_a_pytree(make: Callable[..., Mixture]) -> None:
    q, x = make(), points()
    leaves, structure = jax.tree.flatten(q)
    again = jax.tree.unflatten(structure, leaves)
    assert eqx.tree_equal(q, again)
    assert eqx.tree_equal(q, jax.jit(lambda q: q)(q))
    close(jax.jit(lambda q, x: q.log_prob(x))(q, x), q.log_prob(x))
    stack = jax.tree.map(lambda *a: jnp.stack(a), q, make(4))
    close(jax.vmap(lambda q: q.log_prob(x))(stack)[1], make(4).log_prob(x))
    close(jax.vmap(q.log_prob)(x), q.log_prob(x))


@REPRESENTATIONS
def test_new_mixtures_can_be_made_inside_jit(make: Callable[..., Mixture]) -> None:
    q = make()

    @jax.jit
    def chain(q: Mixture, a: jax.Array) -> tuple[Mixture, jax.Array]:
        return q.affine(a, 1.0).affine(a * jnp.eye(D)).product(a, a**2)

    posterior, log_z = chain(q, jnp.array(0.7))
    expected, expected_z = q.affine(0.7, 1.0).affine(0.7 * np.eye(D)).product(0.7, 0.49)
    close(posterior.log_prob(points()), expected.log_prob(points()))
    close(log_z, expected_z)


def test_mixtures_are_differentiable_in_their_parameters() -> None:
    q, x = full(), points()
    gradient = jax.grad(lambda q: jnp.sum(q.log_prob(x)))(q)
    close(gradient.log_weights, np.sum(q.responsibilities(x), axis=0))


def test_repeated_calls_compile_once() -> None:
    q, x = full(), points()
    q.log_prob(x), q.sample(0, 10)
    with jax.log_compiles(False), jax.no_tracing():
        q.log_prob(x + 1.0)
        q.sample(1, 10)


def test_repr_names_size_and_kind() -> None:
    assert repr(full()) == "Mixture(3 components, 3 dimensions, full, float64)"
    assert "diagonal" in repr(diagonal())
    assert "without arrays" in repr(eqx.filter(full(), eqx.is_array, inverse=True))


# Bad input ------------------------------------------------------------------------------------------

EYE = np.stack([np.eye(2)] * 2)
MEANS = np.zeros((2, 2))
BAD_CONSTRUCTION: dict[str, tuple[Callable[[], Any], str]] = {
    "means": (lambda: Mixture.full([1, 1], np.zeros(2), EYE), r"Means must have shape \[K, D\]"),
    "no means": (lambda: Mixture.full([], np.zeros((0, 2)), np.zeros((0, 2, 2))), "K, D >= 1"),
    "weights": (lambda: Mixture.full([1, 1, 1], MEANS, EYE), r"Weights must have shape \[2\]"),
    "covariances": (lambda: Mixture.full([1, 1], MEANS, EYE[0]), r"Covariances must have shape \[2, 2, 2\]"),
    "variances": (lambda: Mixture.diagonal([1, 1], MEANS, EYE), r"Variances must have shape \[2, 2\]"),
    "negative": (lambda: Mixture.full([1, -1], MEANS, EYE), "not negative"),
    "zero": (lambda: Mixture.full([0, 0], MEANS, EYE), "not all zero"),
    "nan weight": (lambda: Mixture.full([1, np.nan], MEANS, EYE), "Weights must be finite"),
    "nan mean": (lambda: Mixture.full([1, 1], MEANS * np.nan, EYE), "Means must be finite"),
    "nan covariance": (lambda: Mixture.full([1, 1], MEANS, EYE * np.nan), "Covariances must be finite"),
    "asymmetric": (lambda: Mixture.full([1, 1], MEANS, EYE + np.eye(2, k=1)), "symmetric"),
    "singular": (lambda: Mixture.full([1, 1], MEANS, EYE * [[[1]], [[0]]]), "Covariance 1 is singular"),
    "variance": (lambda: Mixture.diagonal([1, 1], MEANS, [[1, 1], [1, 0]]), "positive and finite"),
}
BAD_CALLS: dict[str, tuple[Callable[[Mixture], Any], str]] = {
    "point": (lambda q: q.log_prob(np.zeros(2)), "3 entries in their last axis"),
    "scalar": (lambda q: q.log_prob(0.0), "3 entries in their last axis"),
    "samples": (lambda q: q.sample(0, -1), "must not be negative"),
    "entropy": (lambda q: q.entropy(n=0), "at least one sample"),
    "kl": (lambda q: q.kl(full(D=2)), "same dimension, got 3 and 2"),
    "quantile": (lambda q: q.quantile([0.5, 1.0]), "strictly between 0 and 1"),
    "dimension": (lambda q: q.marginal(3), "from 0 to 2, got 3"),
    "negative dimension": (lambda q: q.marginal([0, -4]), "from 0 to 2, got -4"),
    "fraction": (lambda q: q.marginal([0.5]), "whole numbers"),
    "name": (lambda q: q.marginal("x"), "whole numbers"),
    "twice": (lambda q: q.marginal([0, -3]), "each only once"),
    "none": (lambda q: q.marginal([]), "at least one dimension"),
    "everything": (lambda q: q.condition({0: 0.0, 1: 0.0, 2: 0.0}), "leaves nothing"),
    "many values": (lambda q: q.condition({0: np.zeros(3)}), "one number per dimension"),
    "nan value": (lambda q: q.condition({0: np.nan}), "must be finite"),
    "columns": (lambda q: q.affine(np.eye(2)), "3 columns"),
    "scale": (lambda q: q.affine([1.0, 2.0]), "vector of length 3"),
    "zero scale": (lambda q: q.affine([1.0, 0.0, 1.0]), "by zero"),
    "nan matrix": (lambda q: q.affine(np.eye(3) * np.nan), "must be finite"),
    "rank": (lambda q: q.affine(np.ones((2, 3))), "full row rank"),
    "zero row": (lambda q: q.affine(np.zeros((1, 3))), "full row rank"),
    "tall": (lambda q: q.affine(np.ones((4, 3))), "full row rank"),
    "shift": (lambda q: q.affine(2.0, np.zeros((3, 3))), "The shift must be a number"),
    "shift of a matrix": (lambda q: q.affine(np.ones((1, 3)), np.zeros(3)), "vector of length 1"),
    "product mean": (lambda q: q.product(np.zeros(2), 1.0), "vector of length 3"),
    "product variance": (lambda q: q.product(0.0, -1.0), "positive and finite"),
    "product covariance": (lambda q: q.product(0.0, -np.eye(3)), "positive definite"),
    "product shape": (lambda q: q.product(0.0, np.eye(2)), "must have shape"),
    "top": (lambda q: q.top(0), "at least one component"),
}


@pytest.mark.parametrize("name", BAD_CONSTRUCTION)
def test_bad_parameters_are_refused_in_a_sentence(name: str) -> None:
    call, message = BAD_CONSTRUCTION[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_are_refused_in_a_sentence(name: str) -> None:
    call, message = BAD_CALLS[name]
    with pytest.raises(ValueError, match=message):
        call(full())
