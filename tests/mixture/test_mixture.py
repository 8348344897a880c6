"""The mixture against SciPy, its own definitions, and numerical integration."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixture_makers import REPRESENTATIONS, D, K, close, dense, diagonal, full, points, with_absent
from scipy import stats
from scipy.special import logsumexp

from natmix import Mixture
from natmix.estimate import mean_estimate
from natmix.random_keys import as_key, draw_components

jax.config.update("jax_enable_x64", True)


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
    rows = padded.sample_with_components(1000, key=0)[1]
    assert 0 not in np.asarray(rows)
    alone = with_absent(make(K=1))
    assert alone.entropy().standard_error == 0
    assert alone.kl(make(K=1)).value == pytest.approx(0, abs=1e-12)


# Sampling -------------------------------------------------------------------------------------------


@REPRESENTATIONS
def test_samples_have_the_right_moments_and_shares(make: Callable[..., Mixture]) -> None:
    q, n = make(), 40_000
    x, rows = (np.asarray(a) for a in q.sample_with_components(n, key=1))
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
    np.testing.assert_array_equal(q.sample(10, key=3), q.sample(10, key=jax.random.key(3)))
    np.testing.assert_array_equal(q.sample(10, key=3), q.sample(10, key=jax.random.PRNGKey(3)))
    np.testing.assert_array_equal(q.sample(10, key=3), jax.jit(lambda q: q.sample(10, key=3))(q))
    assert not np.allclose(q.sample(10, key=3), q.sample(10, key=4))
    np.testing.assert_array_equal(q.sample(10), q.sample(10, key=0))
    assert q.sample().shape == (1, D)
    assert q.sample(0, key=0).shape == (0, D)


def test_padding_does_not_change_the_rows_drawn() -> None:
    log_w = jnp.log(jnp.array([0.2, 0.5, 0.3]))
    padded = jnp.concatenate([log_w, jnp.full(5, -jnp.inf)])
    np.testing.assert_array_equal(
        draw_components(as_key(0), log_w, 2000), draw_components(as_key(0), padded, 2000)
    )


@pytest.mark.parametrize("u", [0.0, 1.0])
def test_extreme_uniform_numbers_draw_no_absent_component(u: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.full(shape, u, dtype))
    log_w = jnp.log(jnp.array([0.0, 0.4, 0.6, 0.0]))
    np.testing.assert_array_equal(draw_components(as_key(0), log_w, 2), [1 if u == 0 else 2] * 2)


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
        (p.entropy(50_000, key=0), -np.sum(np.exp(log_p) * log_p) * volume),
        (p.kl(q, 50_000, key=0), np.sum(np.exp(log_p) * (log_p - log_q)) * volume),
    ]:
        assert 0 < estimate.standard_error < 0.05
        assert abs(estimate.value - exact) < 5 * estimate.standard_error


def test_mean_estimate() -> None:
    values = np.random.default_rng(0).normal(size=100)
    estimate = mean_estimate(jnp.array(values))
    assert estimate == (pytest.approx(values.mean()), pytest.approx(stats.sem(values)))
    assert mean_estimate(jnp.ones(1)).standard_error == np.inf


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
    outputs = [q32.log_prob(points()), q32.sample(2, key=0), q32.mean(), q32.std(), q32.quantile(0.5)]
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
    q.log_prob(x), q.sample(10, key=0)
    with jax.log_compiles(False), jax.no_tracing():
        q.log_prob(x + 1.0)
        q.sample(10, key=1)


def test_repr_names_size_and_kind() -> None:
    assert repr(full()) == "Mixture(3 components, 3 dimensions, full, float64)"
    assert "diagonal" in repr(diagonal())
    assert "without arrays" in repr(eqx.filter(full(), eqx.is_array, inverse=True))


def test_a_program_may_know_mixture_points_and_key_when_it_is_traced() -> None:
    mixture, x, key = full(), jnp.asarray(points(3)), jax.random.key(0)

    def of_nothing_else(y: jax.Array) -> jax.Array:
        sample, density = mixture.sample(5, key=key), mixture.log_prob(x)
        return y + jnp.sum(sample) + jnp.sum(density) + jnp.sum(mixture.quantile(0.3))

    np.testing.assert_allclose(jax.jit(of_nothing_else)(jnp.ones(())), of_nothing_else(jnp.ones(())))
    total, _ = jax.lax.scan(lambda y, _: (of_nothing_else(y), None), jnp.zeros(()), length=2)
    np.testing.assert_allclose(total, 2 * of_nothing_else(jnp.zeros(())), rtol=1e-6)
    assert jax.eval_shape(lambda: mixture.sample(5, key=key)).shape == (5, D)
