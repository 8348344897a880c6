"""Products of coordinates and stacked products: as accurate as whitened coordinates, in any precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_covariances

from natmix.gaussians import FullGaussians
from natmix.kernels.float64 import in_double
from natmix.kernels.log_densities import log_prob
from natmix.kernels.scores import weighted_score
from natmix.kernels.stein_sums import stein


def gaussians(dtype, condition=1e5, offset=30.0, K=5, D=7):
    """Narrow Gaussians far from the origin: products of coordinates cancel."""
    rng = np.random.default_rng(0)
    mean = offset * rng.normal(size=(K, D))
    L = np.linalg.cholesky(random_covariances(rng, K, D, condition))
    return FullGaussians.from_scale_tril(jnp.asarray(mean, dtype), jnp.asarray(L, dtype))


def samples(g, n=40):
    y = jax.random.normal(jax.random.key(1), (g.capacity, n, g.dim), g.dtype)
    return g.colour(y).reshape(-1, g.dim)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(
    ("K", "D"), [(5, 6), (40, 7), (3, 1)], ids=["few", "more than products", "one dimension"]
)
@pytest.mark.parametrize("form", ["quadratic", "circular", "stacked"])
def test_the_forms_agree(dtype, K, D, form):
    g = gaussians(dtype, K=K, D=D)
    x = samples(g)
    v = jax.random.normal(jax.random.key(2), x.shape, dtype)
    tolerance = {"rtol": 2e-3, "atol": 2e-3} if dtype == jnp.float32 else {"rtol": 1e-6, "atol": 1e-6}
    log_densities, other = log_prob(g, x, form="whitened"), log_prob(g, x, form=form)
    near = np.asarray(log_densities) > -1e4
    assert other.dtype == dtype
    np.testing.assert_allclose(other[near], log_densities[near], **tolerance)  # type: ignore[call-overload]
    r = jax.nn.softmax(log_densities, axis=1)
    w = jax.nn.softmax(log_densities, axis=0)
    score = weighted_score(g, r, x, form="whitened")
    size = np.abs(score).max()
    np.testing.assert_allclose(weighted_score(g, r, x, form=form) / size, score / size, **tolerance)  # type: ignore[call-overload]
    for a, b in zip(stein(g, w, x, v, form=form), stein(g, w, x, v, form="whitened"), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)  # type: ignore[call-overload]


def test_single_precision_products_would_not_do():
    """What the double precision is for: in float32 the same sums are off by many nats."""
    g = gaussians(jnp.float32)
    x = samples(g)
    W = g.inverse_tril
    P = jnp.einsum("kai,kaj->kij", W, W)
    Pm = jnp.einsum("kij,kj->ki", P, g.mean)
    offset = -0.5 * jnp.sum(Pm * g.mean, axis=1) - g.half_log_det() - 0.5 * g.dim * np.log(2 * np.pi)
    naive = -0.5 * jnp.einsum("ni,kij,nj->nk", x, P, x) + x @ Pm.T + offset
    own = np.arange(len(x)), np.repeat(np.arange(g.capacity), 40)
    right = log_prob(g, x, form="whitened")[own]
    assert np.abs(naive[own] - right).max() > 1.0
    assert np.abs(log_prob(g, x, form="quadratic")[own] - right).max() < 0.01


def test_a_difference_in_single_precision_would_not_do():
    g = gaussians(jnp.float32, offset=3e3)
    x = samples(g)
    W = g.inverse_tril
    y = jnp.einsum("nj,kij->nki", x, W) - jnp.einsum("kij,kj->ki", W, g.mean)
    own = np.arange(len(x)), np.repeat(np.arange(g.capacity), 40)
    right = log_prob(g, x, form="whitened")[own]
    naive = -0.5 * jnp.sum(y * y, axis=-1) - g.half_log_det() - 0.5 * g.dim * np.log(2 * np.pi)
    assert np.abs(naive[own] - right).max() > 0.1
    assert np.abs(log_prob(g, x, form="stacked")[own] - right).max() < 0.01


def cancelling(x):
    """(1e6 + x) - 1e6 row by row: zero in float32 for small x."""
    return jnp.sum(x + 1e6, axis=-1) - 1e6 * x.shape[-1]


@pytest.mark.parametrize("batches", [0, 1, 2])
@pytest.mark.parametrize("inside", ["plain", "loop", "branch"])
def test_double_precision_survives_loops_branches_and_vmap_without_x64(inside, batches):
    exact = in_double(cancelling)

    def in_loop(x):
        return jax.lax.fori_loop(
            0, jnp.asarray(3, jnp.int32), lambda i, total: total + exact(x) / 3, exact(0 * x)
        )

    def in_branch(x):
        return jax.lax.cond(x[0, 0] > 0, exact, lambda x: -exact(x), x)

    fn = {"plain": exact, "loop": in_loop, "branch": in_branch}[inside]
    x = np.full((2, 3, 4, 5), 1e-3, np.float32)[(0,) * (2 - batches)]
    with jax.enable_x64(False):
        for _ in range(batches):
            fn = jax.vmap(fn)
        found = jax.jit(fn)(jnp.asarray(x))
        assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, 5e-3, rtol=1e-5)


@pytest.mark.parametrize("form", ["quadratic", "circular", "stacked"])
def test_log_density_is_differentiable_in_everything_forwards_and_backwards(form):
    g = gaussians(jnp.float64, condition=10.0, offset=1.0, K=2, D=3)
    x = samples(g, 1)

    def total(form):
        return lambda g, x: jnp.sum(jnp.tanh(log_prob(g, x, form=form)))

    for argnum in (0, 1):
        slow = jax.grad(total("whitened"), argnum)(g, x)
        fast = jax.grad(total(form), argnum)(g, x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), slow, fast)
    directions = jax.tree.map(jnp.cos, (g, x))
    slow = jax.jvp(total("whitened"), (g, x), directions)[1]
    np.testing.assert_allclose(jax.jvp(total(form), (g, x), directions)[1], slow, rtol=1e-8)
