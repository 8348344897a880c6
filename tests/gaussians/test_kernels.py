"""The other forms of the sums over samples: as accurate as the whitened one, in any precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_covariances

from natmix.gaussians import FullGaussians, accelerator_products, cpu_products, quadratic_kernel
from natmix.gaussians.kernels import WhitenedKernel
from natmix.gaussians.quadratic_kernel import QuadraticKernel
from natmix.gaussians.stacked_kernel import StackedKernel
from natmix.kernels.float64 import fast_doubles, in_double


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
@pytest.mark.parametrize("form", ["quadratic cpu", "quadratic accelerator", "stacked"])
def test_the_forms_agree(dtype, K, D, form, monkeypatch):
    products = cpu_products if form.endswith("cpu") else accelerator_products
    monkeypatch.setattr(quadratic_kernel, "_products", lambda: products)
    g = gaussians(dtype, K=K, D=D)
    x = samples(g)
    v = jax.random.normal(jax.random.key(2), x.shape, dtype)
    tolerance = {"rtol": 2e-3, "atol": 2e-3} if dtype == jnp.float32 else {"rtol": 1e-6, "atol": 1e-6}
    whitened, other = WhitenedKernel(g), (StackedKernel if form == "stacked" else QuadraticKernel)(g)
    log_prob = whitened.log_prob(x)
    near = np.asarray(log_prob) > -1e4
    assert other.log_prob(x).dtype == dtype
    np.testing.assert_allclose(other.log_prob(x)[near], log_prob[near], **tolerance)
    r = jax.nn.softmax(log_prob, axis=1)
    w = jax.nn.softmax(log_prob, axis=0)
    size = np.abs(whitened.score(r, x)).max()
    np.testing.assert_allclose(other.score(r, x) / size, whitened.score(r, x) / size, **tolerance)
    moment, gradient = other.moment_and_gradient(w, x, v)
    np.testing.assert_allclose(
        other.curvature(moment), whitened.curvature(whitened.moment(w, x, v)), **tolerance
    )
    np.testing.assert_allclose(gradient, whitened.moment_and_gradient(w, x, v)[1], **tolerance)
    np.testing.assert_array_equal(moment, other.moment(w, x, v))


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
    right = WhitenedKernel(g).log_prob(x)[own]
    assert np.abs(naive[own] - right).max() > 1.0
    assert np.abs(QuadraticKernel(g).log_prob(x)[own] - right).max() < 0.01


def test_a_difference_in_single_precision_would_not_do():
    g = gaussians(jnp.float32, offset=3e3)
    x = samples(g)
    W = g.inverse_tril
    y = jnp.einsum("nj,kij->nki", x, W) - jnp.einsum("kij,kj->ki", W, g.mean)
    own = np.arange(len(x)), np.repeat(np.arange(g.capacity), 40)
    right = WhitenedKernel(g).log_prob(x)[own]
    naive = -0.5 * jnp.sum(y * y, axis=-1) - g.half_log_det() - 0.5 * g.dim * np.log(2 * np.pi)
    assert np.abs(naive[own] - right).max() > 0.1
    assert np.abs(StackedKernel(g).log_prob(x)[own] - right).max() < 0.01


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


@pytest.mark.parametrize("form", [QuadraticKernel, StackedKernel])
def test_log_density_is_differentiable_in_everything_both_ways(form):
    g = gaussians(jnp.float64, condition=10.0, offset=1.0, K=2, D=3)
    x = samples(g, 1)

    def total(kernel):
        return lambda g, x: jnp.sum(jnp.tanh(kernel(g).log_prob(x)))

    for argnum in (0, 1):
        slow = jax.grad(total(WhitenedKernel), argnum)(g, x)
        fast = jax.grad(total(form), argnum)(g, x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), slow, fast)
    directions = jax.tree.map(jnp.cos, (g, x))
    slow = jax.jvp(total(WhitenedKernel), (g, x), directions)[1]
    np.testing.assert_allclose(jax.jvp(total(form), (g, x), directions)[1], slow, rtol=1e-8)


class Device:
    """With what jax says of a GPU, if anything."""

    def __init__(self, compute_capability):
        if compute_capability:
            self.compute_capability = compute_capability


@pytest.mark.parametrize(
    ("capability", "fast"),
    [
        ("9.0", True),
        ("10.0", True),
        ("8.9", False),
        ("10.3", False),
        ("12.0", False),
        ("gfx942", True),
        ("gfx90c", False),
        ("gfx1100", False),
        (None, False),
    ],
)
def test_doubles_only_where_they_are_fast(capability, fast, monkeypatch):
    assert fast_doubles()  # a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [Device(capability)])
    assert fast_doubles() is fast
    for D, form in ((64, QuadraticKernel), (65, StackedKernel)):
        kernel = FullGaussians.isotropic(jnp.zeros((1, D)), jnp.ones(1)).kernel()
        assert type(kernel) is (form if fast else WhitenedKernel)
