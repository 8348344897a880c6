"""Estimators against closed forms, numerical integrals and the Monte-Carlo rate."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, make_batch, random_mixture
from plans import GPU

from natmix import Mixture
from natmix.kernels.plan import using
from natmix.modules.ng_estimators import More, Stein
from natmix.modules.sample_selectors import FromComponents

ONE = jnp.asarray(1.0)
PENALTY = jnp.asarray(30.0)


def quadratic(D, seed=0):
    """log p~ = -x^T H x / 2 + h^T x with an indefinite H."""
    rng = np.random.default_rng(seed)
    H = rng.normal(size=(D, D))
    H, h = jnp.asarray(H + H.T), jnp.asarray(rng.normal(size=D))  # type: ignore[assignment]
    return lambda x: -0.5 * x @ H @ x + h @ x, H, h


def lonely(seed, K, D, *, diagonal=False):
    """A mixture whose first component has all the weight, so that log q is quadratic."""
    mixture = random_mixture(seed, K, D, diagonal=diagonal)
    return Mixture(jnp.where(jnp.arange(K) == 0, 0.0, -800.0), mixture.components)


def natural(mixture, estimate):
    """G and g from the whitened natural gradient."""
    gaussians = mixture.components
    return gaussians.unpull_curvature(estimate.curvature), gaussians.unpull(estimate.gradient)


@eqx.filter_jit
def estimated(option, mixture, batch, temperature=ONE, penalty=PENALTY):
    return option.estimate(option.init(mixture), mixture, batch, temperature, penalty)


def exact_quadratic(mixture, H, h, T):
    """G and g of R = log p~ - T log N(m_0, S_0) under every component."""
    P0 = jnp.linalg.inv(mixture.covariances[0])
    G = H - T * P0
    g = mixture.means @ H - h - T * (mixture.means - mixture.means[0]) @ P0
    if mixture.covariance_family == "diagonal":
        G = jnp.diag(jnp.diagonal(G))
    return jnp.broadcast_to(G, mixture.covariances.shape), g


@pytest.mark.parametrize("self_normalised", [True, False])
@pytest.mark.parametrize("T", [1.0, 2.5])
@pytest.mark.parametrize("D", [1, 4])
def test_more_is_exact_on_quadratics(D, T, self_normalised):
    mixture = lonely(D, 3, D)
    f, H, h = quadratic(D)
    x, _ = draw(mixture, 1, [30, 60, 60])
    batch = make_batch(mixture, x, jax.vmap(f)(x), log_background=jnp.zeros(150))
    more = More(self_normalised=self_normalised)
    G, g = natural(mixture, estimated(more, mixture, batch, jnp.asarray(T)))
    G0, g0 = exact_quadratic(mixture, H, h, T)
    np.testing.assert_allclose(G, G0, rtol=1e-7, atol=1e-7 * float(jnp.abs(G0).max()))
    np.testing.assert_allclose(g, g0, rtol=1e-7, atol=1e-7 * float(jnp.abs(g0).max()))


def test_more_is_exact_on_separable_quadratics_with_diagonal_covariances():
    D = 4
    mixture = lonely(3, 2, D, diagonal=True)
    H, h = jnp.asarray([1.0, -2.0, 0.5, 3.0]), jnp.arange(4.0)
    x, _ = draw(mixture, 1, [40, 40])
    batch = make_batch(mixture, x, -0.5 * (x * x) @ H + x @ h, log_background=jnp.zeros(80))
    more = More()
    G, g = natural(mixture, estimated(more, mixture, batch))
    G0, g0 = exact_quadratic(mixture, jnp.diag(H), h, 1.0)
    np.testing.assert_allclose(G, G0, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(g, g0, rtol=1e-7, atol=1e-7)


def test_more_in_float32_with_few_samples_is_as_good_as_in_float64():
    """The ridge of 1e-12 vanishes in float32; the solution must not depend on that."""
    D = 6
    errors = []
    for dtype in (np.float32, np.float64):
        mixture = random_mixture(5, 1, D, dtype=dtype)
        f, H, h = quadratic(D)
        x, _ = draw(mixture, 2, [40])  # 28 features
        values = jax.vmap(f)(x.astype(jnp.float64)).astype(dtype)
        batch = make_batch(mixture, x, values)
        more = More(ridge=np.float32(1e-12))  # type: ignore[arg-type]
        estimate = estimated(more, mixture, batch, jnp.asarray(1.0, dtype), jnp.asarray(30.0, dtype))
        G0, _ = exact_quadratic(mixture.astype(jnp.float64), H, h, 1.0)
        A0 = mixture.astype(jnp.float64).components.pull_curvature(G0)
        errors.append(float(jnp.abs(estimate.curvature - A0).max() / jnp.abs(A0).max()))
    assert errors[1] < 1e-9
    assert errors[0] < 2e-4


def moment_matched(mixture, n, seed):
    """Points with exactly the mean and covariance of the only component."""
    y = np.random.default_rng(seed).normal(size=(n, mixture.dim))
    y = y - y.mean(axis=0)
    y = y @ np.linalg.inv(np.linalg.cholesky(y.T @ y / n)).T
    return mixture.components.colour(jnp.asarray(y)[None])[0]


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("D", [1, 5])
def test_stein_is_exact_on_moment_matched_points(D, diagonal):
    mixture = lonely(7, 1, D, diagonal=diagonal)
    f, H, h = quadratic(D)
    x = moment_matched(mixture, 40, 3)
    batch = make_batch(mixture, x, jax.vmap(f)(x), jax.vmap(jax.grad(f))(x))
    G, g = natural(mixture, estimated(Stein(), mixture, batch))
    G0, g0 = exact_quadratic(mixture, H, h, 1.0)
    np.testing.assert_allclose(G, G0, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(g, g0, rtol=1e-9, atol=1e-9)


def bimodal():
    """A one-dimensional mixture q and target p whose integrals are easy."""
    q = Mixture.full([0.6, 0.4], [[-1.0], [1.2]], [[[0.8]], [[0.5]]])
    p = Mixture.full([0.5, 0.5], [[-1.5], [1.5]], [[[0.5]], [[1.0]]])
    return q, p


def integrals(q, p, T):
    """-E[R''] and -E[R'] under both components, by quadrature on a fine grid."""
    x = jnp.linspace(-12, 12, 20_001)

    def R(v):
        return p.log_prob(v[None]) - T * q.log_prob(v[None])

    first = jax.vmap(jax.grad(R))(x)
    second = jax.vmap(jax.grad(jax.grad(R)))(x)
    density = jnp.exp(q.component_log_prob(x[:, None]))
    step = x[1] - x[0]
    return -(density.T @ second) * step, -(density.T @ first) * step


def estimate_many(option, q, p, n, repetitions, T, foreign):
    """Estimates of (G, g) from ``repetitions`` independent sets of samples."""
    source = Mixture.full([0.3, 0.7], [[-0.5], [0.8]], [[[1.6]], [[1.3]]]) if foreign else q

    def one(key):
        x, rows = source.sample_with_components(n, key=key)
        gradient = jax.vmap(jax.grad(p.log_prob))(x) if option.needs_gradient else None
        batch = make_batch(q, x, p.log_prob(x), gradient, source.log_prob(x), rows)
        ng = option.estimate(option.init(q), q, batch, jnp.asarray(T), PENALTY)
        G, g = natural(q, ng)
        return jnp.stack([G[:, 0, 0], g[:, 0]])

    return jax.lax.map(jax.jit(one), jax.random.split(jax.random.key(n), repetitions))


@pytest.mark.parametrize(
    ("estimator", "self_normalised", "foreign"),
    [
        (Stein, True, True),
        (Stein, False, False),
        (More, True, False),
        (More, False, True),
        pytest.param(Stein, True, False, marks=pytest.mark.slow),
        pytest.param(Stein, False, True, marks=pytest.mark.slow),
        pytest.param(More, True, True, marks=pytest.mark.slow),
        pytest.param(More, False, False, marks=pytest.mark.slow),
    ],
)
def test_estimates_converge_to_integrals_at_the_monte_carlo_rate(estimator, self_normalised, foreign):
    q, p = bimodal()
    option = estimator(self_normalised=self_normalised)
    truth = jnp.stack(integrals(q, p, 1.0))
    few = estimate_many(option, q, p, 500, 60, 1.0, foreign)
    many = estimate_many(option, q, p, 8000, 60, 1.0, foreign)
    error = jnp.sqrt(jnp.mean((many - truth) ** 2, axis=0))
    bias = jnp.abs(many.mean(axis=0) - truth)
    assert bool(jnp.all(bias < 4.5 * many.std(axis=0) / np.sqrt(60) + 0.01)), (many.mean(axis=0), truth)
    ratio = jnp.sqrt(jnp.mean((few - truth) ** 2, axis=0)) / error
    # sixteen times the samples: a quarter of the error
    assert 2.8 < float(jnp.exp(jnp.log(ratio).mean())) < 5.6, ratio


def test_temperature_scales_the_entropy_term():
    q, p = bimodal()
    truth = jnp.stack(integrals(q, p, 0.3))
    got = estimate_many(Stein(), q, p, 8000, 20, 0.3, foreign=False)
    error = got.std(axis=0) / np.sqrt(20)
    assert bool(jnp.all(jnp.abs(got.mean(axis=0) - truth) < 5 * error + 0.01))


@pytest.mark.parametrize("estimator", [Stein, More])
def test_own_samples_only_ignores_other_samples_and_the_background(estimator):
    q, p = bimodal()
    x, rows = draw(q, 0, [300, 200])
    gradient = jax.vmap(jax.grad(p.log_prob))(x)
    option = estimator(own_samples_only=True)

    def run(x, gradient, log_z):
        batch = make_batch(q, x, p.log_prob(x), gradient, log_z, rows)
        return estimated(option, q, batch)

    first = run(x, gradient, q.log_prob(x))
    moved = x.at[300:].add(0.3)  # the second component's samples
    second = run(moved, jax.vmap(jax.grad(p.log_prob))(moved), jnp.zeros(500))
    np.testing.assert_allclose(first.curvature[0], second.curvature[0], rtol=1e-12)
    assert abs(float(first.curvature[1, 0, 0] - second.curvature[1, 0, 0])) > 1e-3


def test_a_component_without_samples_is_not_ok():
    q, p = bimodal()
    x, _ = draw(q, 0, [100, 0])
    option = Stein(own_samples_only=True)
    batch = make_batch(q, x, p.log_prob(x), jax.vmap(jax.grad(p.log_prob))(x), source=jnp.zeros(100, int))
    ng = estimated(option, q, batch)
    assert ng.ok.tolist() == [True, False]
    assert bool(jnp.all(jnp.isfinite(ng.curvature)))


@pytest.mark.parametrize("estimator", [Stein, More])
def test_standard_weights_do_not_overflow(estimator):
    """Weights far beyond the range of float32 still give a finite, self-consistent answer."""
    q, p = bimodal()
    q32, p32 = q.astype(jnp.float32), p.astype(jnp.float32)
    x, _ = draw(q32, 0, [200, 200])
    log_z = q32.log_prob(x) - 150.0  # w = e^150
    gradient = jax.vmap(jax.grad(p32.log_prob))(x)
    option = estimator(self_normalised=False)
    one, penalty = jnp.asarray(1, jnp.float32), jnp.asarray(30, jnp.float32)
    ng = estimated(option, q32, make_batch(q32, x, p32.log_prob(x), gradient, log_z), one, penalty)
    assert not bool(jnp.any(jnp.isnan(ng.curvature)))
    assert bool(jnp.all(jnp.isfinite(ng.curvature) | ~ng.ok[:, None, None]))
    modest = make_batch(q32, x, p32.log_prob(x), gradient, q32.log_prob(x) - 20.0)  # w = e^20
    finite = estimated(option, q32, modest, one, penalty)
    assert bool(jnp.all(finite.ok))
    assert bool(jnp.all(jnp.isfinite(finite.curvature)))


def test_zero_densities_push_a_component_inwards():
    """A target that is flat on [-1, 1] and zero outside pulls N(0, 4) together, and N(1, .1) left."""
    q = Mixture.full([0.5, 0.5], [[0.0], [1.0]], [[[4.0]], [[0.1]]])
    x, _ = draw(q, 0, [2000, 2000])
    zero = jnp.abs(x[:, 0]) > 1
    batch = make_batch(q, x, jnp.where(zero, -30.0, 0.0), jnp.zeros_like(x))
    batch = type(batch)(**{**batch.__dict__, "zero": zero})
    ng = estimated(Stein(), q, batch, jnp.asarray(1e-3))
    G, g = natural(q, ng)
    assert float(G[0, 0, 0]) > 0  # more precise
    assert float(g[1, 0]) > 0  # mean moves by -g


@eqx.filter_jit
def ask_and_tell(selector, state, key, iteration, mixture):
    draws = selector.ask(state, key, iteration, mixture, jnp.arange(mixture.num_components))
    value, slope = jnp.sum(jnp.sin(draws.x), axis=1), jnp.cos(draws.x)
    return selector.tell(state, draws, value, slope, iteration, mixture, PENALTY)


@pytest.mark.parametrize(("reuse", "diagonal"), [(0.0, True), (1.0, False)])
def test_the_table_of_own_samples_changes_nothing(reuse, diagonal):
    """Also with absent components between present ones, and among reused samples."""
    mixture = random_mixture(3, 5, 4, diagonal=diagonal)
    absent = jnp.asarray([0, 1, 0, 1, 0], bool)
    mixture = Mixture(
        jax.nn.log_softmax(jnp.where(absent, -jnp.inf, mixture.log_weights)), mixture.components
    )
    selector = FromComponents(desired_samples=13, reuse_ratio=reuse)
    state = selector.init(mixture, needs_gradient=True)
    for iteration in map(jnp.asarray, (0, 1)):
        state, batch = ask_and_tell(selector, state, jax.random.key(int(iteration)), iteration, mixture)
    assert batch.own.shape == (5, 13)
    np.testing.assert_array_equal(np.asarray(batch.own[1]), -1)
    option = Stein(own_samples_only=True)
    table = estimated(option, mixture, batch)
    dense = estimated(option, mixture, dataclasses.replace(batch, own=None))
    np.testing.assert_array_equal(table.ok, ~absent)
    for a, b in ((table.curvature, dense.curvature), (table.gradient, dense.gradient)):
        np.testing.assert_allclose(np.asarray(a)[~absent], np.asarray(b)[~absent], rtol=1e-9, atol=1e-12)


def test_more_for_several_components_at_once(monkeypatch):
    """As on accelerators: the same estimates, whichever components are regressed together."""
    mixture = random_mixture(4, 5, 3)
    x, _ = draw(mixture, 1, [60] * 5)
    batch = make_batch(mixture, x, -jnp.sum(jnp.abs(x) ** 1.5, axis=1))
    option = More()

    def estimate():
        with using(GPU):  # the dense form
            return jax.jit(lambda: option.estimate(option.init(mixture), mixture, batch, ONE, PENALTY))()

    one_by_one = estimate()
    monkeypatch.setattr(
        "natmix.kernels.more_regressions.dense.components_at_once", lambda elements, on_cpu: 2
    )
    for a, b in zip(jax.tree.leaves(one_by_one), jax.tree.leaves(estimate()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("self_normalised", [True, False])
@pytest.mark.parametrize("own", [True, False], ids=["own", "all"])
@pytest.mark.parametrize(("diagonal", "padding_rows"), [(True, 30), (False, 30), (False, 5)])
def test_stein_in_passes_is_stein(monkeypatch, self_normalised, own, diagonal, padding_rows):
    """With weights formed block by block: also padding, invalid samples, zeros and absent components."""
    mixture = random_mixture(5, 4, 3, diagonal=diagonal)
    exists = jnp.asarray([True, False, True, True])
    weights = jax.nn.log_softmax(jnp.where(exists, mixture.log_weights, -jnp.inf))
    mixture = Mixture(weights, mixture.components)
    x, source = draw(mixture, 2, [50, 0, 40, 60])
    n = x.shape[0]
    batch = make_batch(mixture, x, jnp.sum(jnp.sin(x), axis=1), jnp.cos(x), source=source)
    number = jnp.arange(n)
    zero = number % 11 == 0
    gradient = jnp.where(zero[:, None], 0, batch.gradient)
    batch = dataclasses.replace(batch, zero=zero, gradient=gradient, valid=number % 7 > 0)
    padding = jax.tree.map(lambda a: jnp.zeros((padding_rows, *a.shape[1:]), a.dtype) if a.ndim else a, batch)
    padding = dataclasses.replace(padding, log_components=padding.log_components + 1e3)
    padded = jax.tree.map(lambda a, b: jnp.concatenate([a, b]) if a.ndim else a, batch, padding)
    option = Stein(self_normalised=self_normalised, own_samples_only=own)

    def estimate(batch):
        return jax.jit(lambda b: option.estimate(None, mixture, b, 1.3 * ONE, PENALTY))(batch)

    monkeypatch.setattr("natmix.kernels.coordinates.block_rows", lambda elements: 16)
    passes = estimate(padded)
    with using(GPU):
        at_once = estimate(batch)
    np.testing.assert_array_equal(passes.ok, at_once.ok)
    assert np.asarray(passes.ok)[np.asarray(exists)].all()
    for a, b in ((passes.curvature, at_once.curvature), (passes.gradient, at_once.gradient)):
        np.testing.assert_allclose(np.asarray(a)[exists], np.asarray(b)[exists], rtol=1e-9, atol=1e-10)
