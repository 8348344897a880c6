"""Mixtures made of mixtures: against their definitions, in double and in single precision."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixture_makers import REPRESENTATIONS, D, K, close, diagonal, full, points
from scipy import stats

from natmix import Mixture
from natmix.gaussians import FullGaussians

jax.config.update("jax_enable_x64", True)


# Marginal and conditional distributions -------------------------------------------------------------


@REPRESENTATIONS
def test_marginals_take_the_dimensions_in_order(make: Callable[..., Mixture]) -> None:
    q = make()
    m = q.marginal([2, 0])
    close(m.means, q.means[:, [2, 0]])
    close(m.covariances, np.asarray(q.covariances)[:, [2, 0]][:, :, [2, 0]])
    assert m.covariance_family == q.covariance_family
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
    assert b.covariance_family == q.covariance_family
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
    assert image.covariance_family == (q.covariance_family if A.ndim < 2 else "full")
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
    assert posterior.covariance_family == (q.covariance_family if C.ndim < 2 else "full")


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
    L = np.asarray(double.components.scale_tril)  # type: ignore[attr-defined]
    ratio = np.linalg.solve(L, np.asarray(single.components.scale_tril, np.float64))  # type: ignore[arg-type, attr-defined]
    eye = np.broadcast_to(np.eye(single.dim), ratio.shape)
    np.testing.assert_allclose(ratio, eye, atol=2e-3)
    shift = np.linalg.solve(L, np.asarray(single.means - double.means)[..., None])
    np.testing.assert_allclose(shift, np.zeros_like(shift), atol=2e-2)


def test_float32_kl_of_ill_conditioned_gaussians() -> None:
    single, double = ill_conditioned()
    p, q = (Mixture(jnp.zeros(1, m.dtype), m.components.take(jnp.array([0]))) for m in (single, double))
    assert p.kl(p).value == pytest.approx(0, abs=1e-2)
    assert p.kl(q).value == pytest.approx(0, abs=1e-6)
