"""Batches of Gaussians: sums in blocks, and in single precision."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian_makers import ALL_FAMILIES, Data, K, N, close, full

from natmix.gaussians import FullGaussians
from natmix.kernels.blocks import block_rows
from natmix.kernels.linalg import symmetrise
from natmix.kernels.plan import Plan, using
from natmix.kernels.stein_sums import score_moments, stein

jax.config.update("jax_enable_x64", True)


# Blocks ---------------------------------------------------------------------------------------------

BLOCKED: dict[str, Callable[[Any, Data, Any], Any]] = {
    "log_prob": lambda g, d, count: g.log_prob(d.x, count),
    "mixture_log_prob": lambda g, d, count: g.mixture_log_prob(d.log_weights, d.x, count),
    "mixture_score": lambda g, d, count: g.mixture_score(d.r, d.x, count),
}
SUMMED: dict[str, Callable[[Any, Data, Any], Any]] = {
    "stein": lambda g, d, count: stein(g, d.w, d.x, d.gradients, count),
    "score_moments": lambda g, d, count: score_moments(g, d.w, d.x, count),
}


@pytest.fixture
def small_blocks() -> Plan:
    """The plan with blocks of the smallest size."""
    plan = dataclasses.replace(Plan.detect(), block_elements=1)
    with using(plan):
        assert block_rows(10) < N
    return plan


@ALL_FAMILIES
@pytest.mark.parametrize("name", [*BLOCKED, *SUMMED])
def test_block_size_changes_nothing(make: Callable[[], Any], name: str, small_blocks: Plan) -> None:
    g, d = make(), Data()
    operation = {**BLOCKED, **SUMMED}[name]
    expected = operation(g, d, None)
    with using(small_blocks):
        jax.tree.map(close, operation(g, d, None), expected)


@ALL_FAMILIES
def test_drawing_in_small_blocks_changes_nothing(make: Callable[[], Any], small_blocks: Plan) -> None:
    g, d = make(), Data()
    expected = g.colour_rows(d.x, d.rows)
    with using(small_blocks):
        close(g.colour_rows(d.x, d.rows), expected)


@pytest.mark.parametrize("name", BLOCKED)
@pytest.mark.parametrize("count", [0, 1, 64, 100, N, N + 50])
def test_rows_within_the_count_are_right(name: str, count: int, small_blocks: Plan) -> None:
    g, d = full(), Data()
    expected = BLOCKED[name](g, d, None)
    with using(small_blocks):
        got = jax.jit(BLOCKED[name], static_argnums=1)(g, d, jnp.array(count))
        close(got[:count], expected[:count])


@pytest.mark.parametrize("name", SUMMED)
@pytest.mark.parametrize("count", [0, 64, 100])
def test_sums_stop_after_the_count(name: str, count: int, small_blocks: Plan) -> None:
    g, d = full(), Data()
    d.w = d.w * (jnp.arange(N) < count)[:, None]
    expected = SUMMED[name](g, d, None)
    with using(small_blocks):
        d.x = d.x.at[128:].set(jnp.nan)  # whole blocks beyond the count are never touched
        jax.tree.map(close, SUMMED[name](g, d, jnp.array(count)), expected)


def test_log_density_in_small_blocks_is_differentiable(small_blocks: Plan) -> None:
    g, d = full(), Data()
    r = jax.nn.softmax(g.log_prob(d.x) + d.log_weights, axis=1)
    with using(small_blocks):
        gradient = jax.grad(lambda x: jnp.sum(g.mixture_log_prob(d.log_weights, x)))(d.x)
        close(gradient, g.mixture_score(r, d.x))


# Accuracy in float32 --------------------------------------------------------------------------------


def ill_conditioned(condition: float, dim: int = 10) -> FullGaussians:
    """Float32, with covariances of this condition number and no preferred axes."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(K, dim, dim)))[0]
    S = (Q * np.geomspace(1, 1 / condition, dim)) @ np.swapaxes(Q, 1, 2)
    L = jnp.array(np.linalg.cholesky(S), jnp.float32)
    return FullGaussians.from_scale_tril(jnp.array(rng.normal(size=(K, dim)), jnp.float32), L)


def in_float64(g: FullGaussians) -> FullGaussians:
    return FullGaussians.from_scale_tril(g.mean.astype(jnp.float64), g.scale_tril.astype(jnp.float64))


@pytest.mark.parametrize("condition", [1e6, 1e9])
def test_float32_log_density_of_ill_conditioned_gaussians(condition: float) -> None:
    g = ill_conditioned(condition)
    x = g.colour(jax.random.normal(jax.random.key(0), (K, 100, g.dim), g.dtype))[1]
    exact = in_float64(g).log_prob(x.astype(jnp.float64))[:, 1]
    error = np.abs(g.log_prob(x)[:, 1] - exact)
    assert g.log_prob(x).dtype == jnp.float32
    # y = L^-1 (x - m) is known to eps * cond(L), and x itself only to eps.
    assert np.max(error) < 100 * np.finfo(np.float32).eps * np.sqrt(condition)


def test_float32_factors_stay_inverse_over_many_updates() -> None:
    g = ill_conditioned(1e6)
    rng = np.random.default_rng(1)
    step = jax.jit(lambda g, P: g.moved(g.factor(P), jnp.zeros_like(g.mean)))
    for _ in range(100):
        noise = symmetrise(jnp.array(rng.normal(size=g.scale_tril.shape) * 0.02, g.dtype))
        g = step(g, g.plus_identity(noise))
    drift = np.asarray(g.scale_tril, np.float64) @ np.asarray(g.inverse_tril, np.float64) - np.eye(g.dim)
    assert np.max(np.abs(drift)) < 1e-3
    x = g.colour(jax.random.normal(jax.random.key(0), (K, 100, g.dim), g.dtype))[0]
    np.testing.assert_allclose(g.log_prob(x)[:, 0], in_float64(g).log_prob(x)[:, 0], atol=0.05)
