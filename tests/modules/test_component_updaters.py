"""Component updates against closed forms and their guarantees."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import gaussian_kl, random_covariances, random_mixture
from plans import XLA

from natmix.gaussians import DiagonalGaussians, FullGaussians
from natmix.kernels.plan import Plan, using
from natmix.kernels.trust_region.cholesky import cholesky_search
from natmix.kernels.trust_region.eigen import eigen_search
from natmix.kernels.trust_region.kl_by_moments import KlByMoments
from natmix.modules.component_updaters import (
    OPTIONS,
    DirectComponentUpdater,
    Iblr,
    TrustRegionComponentUpdater,
)
from natmix.modules.records import NaturalGradient

ONE = jnp.asarray(1.0)


@pytest.fixture(params=[Plan.detect(), XLA], ids=["native", "xla"])
def plan(request):
    """With native kernels, where there are any, and without."""
    with using(request.param):
        yield request.param


def pulled(gaussians, G, g):
    """The whitened natural gradient of dense G, g."""
    K = gaussians.capacity
    return NaturalGradient(
        gaussians.pull_curvature(jnp.asarray(G)), gaussians.pull(jnp.asarray(g)), jnp.ones(K, bool)
    )


def random_gradient(seed, K, D, definite=False):
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(K, D, D))
    G = G @ np.swapaxes(G, 1, 2) if definite else G + np.swapaxes(G, 1, 2)
    return G, rng.normal(size=(K, D))


def update(option, gaussians, ng, stepsize, updates=1, T=1.0):
    K = gaussians.capacity
    step = jnp.full(K, stepsize, gaussians.dtype)
    return option.update(gaussians, ng, step, jnp.full(K, updates), jnp.asarray(T, gaussians.dtype))


@pytest.mark.parametrize("diagonal", [False, True])
def test_direct_step_of_one_lands_on_a_gaussian_target(diagonal):
    """R = log N(t, C) - log N(m, S): G = C^-1 - S^-1, g = C^-1 (m - t)."""
    start = random_mixture(0, 3, 4, diagonal=diagonal).components
    target = random_mixture(1, 3, 4, diagonal=diagonal).components
    P, P0 = jnp.linalg.inv(target.covariance()), jnp.linalg.inv(start.covariance())
    g = jnp.einsum("kij,kj->ki", P, start.mean - target.mean)
    new, ok = update(DirectComponentUpdater(), start, pulled(start, P - P0, g), 1.0)
    assert bool(jnp.all(ok))
    np.testing.assert_allclose(new.mean, target.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(new.covariance(), target.covariance(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("beta", [0.1, 0.7])
def test_direct_follows_equation_4(beta):
    gaussians = random_mixture(2, 4, 3).components
    G, g = random_gradient(3, 4, 3, definite=True)
    new, ok = update(DirectComponentUpdater(), gaussians, pulled(gaussians, G, g), beta)
    P = np.linalg.inv(gaussians.covariance())
    P1 = P + beta * G
    linear = np.einsum("kij,kj->ki", P, gaussians.mean) + beta * (
        np.einsum("kij,kj->ki", G, gaussians.mean) - g
    )
    assert bool(jnp.all(ok))
    np.testing.assert_allclose(new.covariance(), np.linalg.inv(P1), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(new.mean, np.linalg.solve(P1, linear[..., None])[..., 0], rtol=1e-9)


@pytest.mark.parametrize("beta", [0.1, 0.7])
def test_iblr_follows_equation_8(beta):
    gaussians = random_mixture(2, 4, 3).components
    G, g = random_gradient(3, 4, 3)
    S = np.asarray(gaussians.covariance())
    P1 = np.linalg.inv(S) + beta * G + 0.5 * beta**2 * G @ S @ G
    later, ok = update(Iblr(), gaussians, pulled(gaussians, G, g), beta, updates=3)
    assert bool(jnp.all(ok))
    np.testing.assert_allclose(later.covariance(), np.linalg.inv(P1), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        later.mean, gaussians.mean - beta * np.einsum("kij,kj->ki", S, g), rtol=1e-9, atol=1e-10
    )
    first, _ = update(Iblr(), gaussians, pulled(gaussians, G, g), beta, updates=0)
    np.testing.assert_array_equal(first.mean, gaussians.mean)
    np.testing.assert_allclose(first.covariance(), later.covariance(), rtol=1e-12)
    moved, _ = update(
        Iblr(move_mean_at_first_update=True), gaussians, pulled(gaussians, G, g), beta, updates=0
    )
    np.testing.assert_allclose(moved.mean, later.mean, rtol=1e-12)


def test_iblr_stays_positive_definite_where_direct_fails():
    K, D = 200, 5
    gaussians = FullGaussians.from_covariance(
        jnp.zeros((K, D)), jnp.asarray(random_covariances(np.random.default_rng(0), K, D, 100))
    )
    G, g = random_gradient(1, K, D)
    ng = pulled(gaussians, 10 * G, g)
    _, direct_ok = update(DirectComponentUpdater(), gaussians, ng, 1.0)
    new, ok = update(Iblr(), gaussians, ng, 1.0)
    assert float(direct_ok.mean()) < 0.5
    assert bool(jnp.all(ok))
    # at least half the old precision, as the paper's argument says
    A = np.asarray(
        jnp.einsum("kij,kjl,kml->kim", gaussians.inverse_tril, new.covariance(), gaussians.inverse_tril)
    )
    assert np.linalg.eigvalsh(A).max() <= 2 * (1 + 1e-9)


CASES = [(D, condition) for D in (1, 2, 5, 20, 50, 100) for condition in (1.0, 1e3, 1e6)]


@functools.cache
def trust_region_update(native):
    """Compiled once for each number of dimensions, with the plan in use."""
    return jax.jit(lambda *arguments: TrustRegionComponentUpdater().update(*arguments))


exact_search = jax.jit(eigen_search)


@pytest.mark.parametrize(("D", "condition"), CASES)
def test_trust_region_meets_its_bound_in_float32(D, condition, plan):
    """Six dimensions x three conditions x 120 components, or 24 where these are large: 1584 random cases."""
    K = 120 if D <= 20 else 24
    rng = np.random.default_rng(D)
    cov = random_covariances(rng, K, D, condition).astype(np.float32)
    mean = rng.normal(size=(K, D)).astype(np.float32)
    L = np.linalg.cholesky(cov.astype(np.float64)).astype(np.float32)
    gaussians = FullGaussians.from_scale_tril(jnp.asarray(mean), jnp.asarray(L))
    # Curvatures from harmless to absurd, in whitened coordinates, a third of them definite.
    A = rng.normal(size=(K, D, D)) * np.exp(rng.uniform(-3, 8, size=(K, 1, 1)))
    A = np.where(np.arange(K)[:, None, None] % 3 == 0, A @ np.swapaxes(A, 1, 2) / D, A + np.swapaxes(A, 1, 2))
    a = rng.normal(size=(K, D)) * np.exp(rng.uniform(-3, 8, size=(K, 1)))
    bound = np.exp(rng.uniform(np.log(1e-3), np.log(5.0), size=K)).astype(np.float32)
    ng = NaturalGradient(jnp.asarray(A, jnp.float32), jnp.asarray(a, jnp.float32), jnp.ones(K, bool))
    one = jnp.asarray(1, jnp.float32)
    update_all = trust_region_update(plan.native)
    new, ok = update_all(gaussians, ng, jnp.asarray(bound), jnp.ones(K, int), one)
    assert bool(jnp.all(ok))
    assert new.mean.dtype == jnp.float32
    kl = gaussian_kl(new, gaussians)
    assert np.all(kl <= 1.01 * bound + 1e-7)
    # Which of them could still take a longer step, in float64 from the same numbers?
    values, vectors = np.linalg.eigh(np.asarray(ng.curvature, dtype=np.float64))
    b = np.einsum("kij,ki->kj", vectors, np.asarray(ng.gradient, dtype=np.float64))
    step = exact_search(jnp.asarray(values), jnp.asarray(b), jnp.asarray(bound, jnp.float64), ONE)
    full = np.asarray(step.eta) <= 1 + 1e-9
    assert np.all(kl[~full] >= 0.99 * bound[~full])
    # The smallest eta: a step longer by 1% breaks the bound or positive definiteness.
    shorter = np.maximum(0.99 * np.asarray(step.eta), 1.0)
    ratio = 1 + values / shorter[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        longer = 0.5 * np.sum(np.log(ratio) - 1 + 1 / ratio + (b / (shorter[:, None] * ratio)) ** 2, axis=1)
    assert np.all((longer > bound)[~full] | np.any(ratio <= 0, axis=1)[~full])


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("T", [0.5, 2.0])
def test_trust_region_never_steps_beyond_the_full_step(T):
    gaussians = random_mixture(4, 5, 3).components
    G, g = random_gradient(5, 5, 3, definite=True)
    new, ok = update(
        TrustRegionComponentUpdater(), gaussians, pulled(gaussians, 1e-3 * G, 1e-3 * g), 100.0, T=T
    )
    full, _ = update(DirectComponentUpdater(), gaussians, pulled(gaussians, 1e-3 * G, 1e-3 * g), 1 / T)
    assert bool(jnp.all(ok))
    np.testing.assert_allclose(new.mean, full.mean, rtol=1e-9)
    np.testing.assert_allclose(new.covariance(), full.covariance(), rtol=1e-9)


def test_trust_region_with_diagonal_covariances_meets_its_bound():
    rng = np.random.default_rng(0)
    K, D = 50, 8
    gaussians = DiagonalGaussians(
        jnp.asarray(rng.normal(size=(K, D))), jnp.asarray(rng.uniform(0.1, 2, size=(K, D)))
    )
    ng = NaturalGradient(
        jnp.asarray(30 * rng.normal(size=(K, D))), jnp.asarray(rng.normal(size=(K, D))), jnp.ones(K, bool)
    )
    new, ok = update(TrustRegionComponentUpdater(), gaussians, ng, 0.2)
    full = FullGaussians.from_covariance
    kl = gaussian_kl(full(new.mean, new.covariance()), full(gaussians.mean, gaussians.covariance()))
    assert bool(jnp.all(ok))
    np.testing.assert_allclose(kl, 0.2, rtol=1e-3)


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_failed_update_leaves_that_component_alone_and_only_it(option, diagonal):
    gaussians = random_mixture(0, 4, 3, diagonal=diagonal).components
    G, g = random_gradient(1, 4, 3, definite=True)
    good, ok = update(option(), gaussians, pulled(gaussians, G, g), 0.3)
    assert bool(jnp.all(ok))
    ng = pulled(gaussians, G, g)
    broken = NaturalGradient(ng.curvature.at[2].set(jnp.nan), ng.gradient, ng.ok)
    mixed, ok = update(option(), gaussians, broken, 0.3)
    assert ok.tolist() == [True, True, False, True]
    for a, b, c in zip(*map(jax.tree.leaves, (mixed, good, gaussians)), strict=True):
        np.testing.assert_allclose(a[jnp.array([0, 1, 3])], b[jnp.array([0, 1, 3])], rtol=1e-12)
        np.testing.assert_array_equal(a[2], c[2])


def test_indefinite_direct_update_is_undone():
    gaussians = random_mixture(0, 2, 3).components
    G = jnp.stack([-10 * jnp.linalg.inv(gaussians.covariance()[0]), jnp.eye(3)])
    new, ok = update(DirectComponentUpdater(), gaussians, pulled(gaussians, G, jnp.ones((2, 3))), 1.0)
    assert ok.tolist() == [False, True]
    np.testing.assert_array_equal(new.mean[0], gaussians.mean[0])


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("option", OPTIONS)
def test_updates_do_not_depend_on_coordinates(option):
    """x -> B x + c changes nothing but the coordinates."""
    rng = np.random.default_rng(3)
    D = 3
    mixture = random_mixture(6, 4, D)
    B, c = jnp.asarray(rng.normal(size=(D, D)) + 2 * np.eye(D)), jnp.asarray(rng.normal(size=D))
    G, g = random_gradient(8, 4, D)
    there = mixture.affine(B, c)
    inverse = jnp.linalg.inv(B)
    G1 = jnp.einsum("ji,kjl,lm->kim", inverse, jnp.asarray(G), inverse)
    g1 = jnp.asarray(g) @ inverse
    one, ok = update(option(), mixture.components, pulled(mixture.components, G, g), 0.05)
    two, ok2 = update(option(), there.components, pulled(there.components, G1, g1), 0.05)
    assert ok.tolist() == ok2.tolist()
    np.testing.assert_allclose(two.mean, one.mean @ B.T + c, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(two.covariance(), B @ one.covariance() @ B.T, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("D", "size"), [(3, 8.0), (20, 8.0), (60, 3.0), pytest.param(150, 1.0, marks=pytest.mark.slow)]
)
def test_the_search_by_choleskys_finds_the_same_step_as_the_eigenvalues(D, size):
    K = 30
    rng = np.random.default_rng(D)
    A = rng.normal(size=(K, D, D)) * np.exp(rng.uniform(-3, size, size=(K, 1, 1)))
    A = np.where(np.arange(K)[:, None, None] % 3 == 0, A @ np.swapaxes(A, 1, 2) / D, A + np.swapaxes(A, 1, 2))
    a = rng.normal(size=(K, D)) * np.exp(rng.uniform(-3, size, size=(K, 1)))
    bound = np.exp(rng.uniform(np.log(1e-3), np.log(2.0), size=K))
    bound[::6] = 1e12  # definite ones: the full step
    A, a, bound = (np.asarray(v, np.float32) for v in (A, a, bound))  # type: ignore[assignment]
    found = jax.jit(cholesky_search)(*map(jnp.asarray, (A, a, bound)), jnp.asarray(1, jnp.float32))
    assert bool(jnp.all(found.ok))
    U, shift = np.asarray(found.factor, np.float64), np.asarray(found.shift, np.float64)
    P = U @ np.swapaxes(U, 1, 2)
    inverse_trace = np.trace(np.linalg.inv(P), axis1=1, axis2=2)
    kl = 0.5 * (inverse_trace - D + np.linalg.slogdet(P)[1] + np.sum(shift**2, axis=1))
    values, vectors = np.linalg.eigh(A.astype(np.float64))
    b = np.einsum("kij,ki->kj", vectors, a.astype(np.float64))
    exact = exact_search(*map(jnp.asarray, (values, b, bound.astype(np.float64))), ONE)
    full = np.asarray(exact.eta) <= 1 + 1e-9
    assert full[::6].all()
    assert np.all(kl <= 1.005 * bound + 1e-6)
    assert np.all(kl[~full] >= 0.965 * bound[~full])
    np.testing.assert_allclose(kl[full], np.asarray(exact.kl)[full], rtol=2e-3, atol=1e-6)


def exact_kl(A, a, eta):
    values, vectors = np.linalg.eigh(A)
    b = np.einsum("kij,ki->kj", vectors, a)
    x = values / eta[:, None]
    return 0.5 * np.sum(np.log1p(x) - x / (1 + x) + (b / (eta[:, None] + values)) ** 2, axis=1)


def test_moments_give_the_kl_of_two_eigenvalues_exactly():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(4, 6, 6)))[0]
    values = np.where(np.arange(6) < 2, -0.9, 5.0) * np.array([1.0, 1e-3, 1e6, 0.0])[:, None]
    A = np.einsum("kij,kj,klj->kil", Q, values, Q)
    a = rng.normal(size=(4, 6))
    eta = np.array([1.0, 1.0, 1e6, 1.0])
    found = KlByMoments.of(jnp.asarray(A), jnp.asarray(a))(jnp.log(eta))
    np.testing.assert_allclose(found, exact_kl(A, a, eta), rtol=1e-6)


def test_moments_give_nearly_the_kl_of_a_wide_spectrum():
    rng = np.random.default_rng(1)
    K, D = 20, 50
    A = rng.normal(size=(K, D, D))
    A = np.where(np.arange(K)[:, None, None] % 2 == 0, A @ np.swapaxes(A, 1, 2) / D, A + np.swapaxes(A, 1, 2))
    a = rng.normal(size=(K, D)) * np.exp(rng.uniform(-2, 2, size=(K, 1)))
    eta = 3 * np.linalg.norm(A, 2, axis=(1, 2))
    found = KlByMoments.of(*(jnp.asarray(v, jnp.float32) for v in (A, a)))
    np.testing.assert_allclose(found(jnp.log(jnp.asarray(eta, jnp.float32))), exact_kl(A, a, eta), rtol=5e-3)
    assert np.all(np.isnan(found(jnp.full(K, -20.0))[1::2]))  # not definite


compiled_search = jax.jit(cholesky_search)


@pytest.mark.parametrize("size", [1e-25, 1e-8, 1.0, 1e8, 1e18])
def test_the_search_by_choleskys_takes_curvatures_of_any_size(size):
    A = jnp.asarray(size * np.eye(40)[None] * np.where(np.arange(40) % 2, 1, 0.5), jnp.float32)
    bound = jnp.full(1, 0.1, jnp.float32)
    found = compiled_search(A, jnp.ones((1, 40), jnp.float32), bound, jnp.asarray(1, jnp.float32))
    assert bool(found.ok[0])
    assert 0.099 <= float(found.kl[0]) <= 0.1


def test_the_search_by_choleskys_refuses_a_bound_of_zero():
    found = cholesky_search(jnp.eye(3)[None], jnp.ones((1, 3)), jnp.zeros(1), jnp.asarray(1.0))
    assert not bool(found.ok[0])


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("option", [DirectComponentUpdater(), Iblr(), TrustRegionComponentUpdater()])
def test_an_update_to_something_too_narrow_for_its_type_fails(option):
    """A standard deviation of 1e-5 beside a mean of 10 is nearly below float32's resolution."""
    flat = jnp.asarray([1.0, 1.0], jnp.float32)
    gaussians = FullGaussians.from_scale_tril(
        jnp.full((3, 2), 10.0, jnp.float32), jnp.stack([jnp.diag(flat)] * 3)
    )
    steep = jnp.stack([jnp.diag(jnp.asarray([c, 0.0], jnp.float32)) for c in (1e2, 1e10, 1e11)])
    natural_gradient = NaturalGradient(steep, jnp.zeros((3, 2), jnp.float32), jnp.ones(3, bool))
    steps = jnp.full(3, 1e9 if isinstance(option, TrustRegionComponentUpdater) else 1.0, jnp.float32)
    one = jnp.asarray(1, jnp.float32)
    new, ok = option.update(gaussians, natural_gradient, steps, jnp.ones(3, int), one)
    assert ok.tolist() == [True, False, False]
    np.testing.assert_array_equal(new.scale_tril[1:], gaussians.scale_tril[1:])
    # In double precision there is room for it.
    given = (gaussians, natural_gradient, steps)
    wide = jax.tree.map(lambda a: a if a.dtype == bool else a.astype(float), given)
    assert option.update(*wide, jnp.ones(3, int), one)[1].all()


def test_a_component_that_is_too_narrow_may_become_wider():
    narrow = jnp.diag(jnp.asarray([1e-7, 1.0], jnp.float32))[None]
    gaussians = FullGaussians.from_scale_tril(jnp.full((1, 2), 10.0, jnp.float32), narrow)
    widen = jnp.diag(jnp.asarray([-0.5, 0.0], jnp.float32))[None]
    natural_gradient = NaturalGradient(widen, jnp.zeros((1, 2), jnp.float32), jnp.ones(1, bool))
    one = jnp.asarray(1, jnp.float32)
    new, ok = DirectComponentUpdater().update(
        gaussians, natural_gradient, jnp.ones(1, jnp.float32), jnp.ones(1, int), one
    )
    assert bool(ok[0])
    assert float(new.scale_tril[0, 0, 0]) > 1.2e-7  # type: ignore[attr-defined]
