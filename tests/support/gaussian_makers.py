"""Gaussians and arguments for the tests of them."""

from collections.abc import Callable
from functools import partial

import isotropic_family  # noqa: F401  registers itself
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix.gaussians import FAMILIES, AbstractGaussians, DiagonalGaussians, FullGaussians
from natmix.kernels.linalg import symmetrise

K, D, N = 3, 4, 200
close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)


def diagonal(seed: int = 0) -> DiagonalGaussians:
    rng = np.random.default_rng(seed)
    return DiagonalGaussians(jnp.array(rng.normal(size=(K, D))), jnp.array(rng.uniform(0.3, 2, (K, D))))


def full(seed: int = 0) -> FullGaussians:
    rng = np.random.default_rng(seed)
    L = np.tril(rng.normal(size=(K, D, D)), -1) + np.eye(D) * rng.uniform(0.3, 2, (K, 1, D))
    return FullGaussians.from_scale_tril(jnp.array(rng.normal(size=(K, D))), jnp.array(L))


def maker(family: type[AbstractGaussians]) -> Callable[..., AbstractGaussians]:
    """What draws Gaussians of a family."""

    def make(seed: int = 0) -> AbstractGaussians:
        dense = full(seed)
        return family.from_covariance(dense.mean, dense.covariance())

    return make


def same_as_full(g: AbstractGaussians) -> FullGaussians:
    return FullGaussians.from_covariance(g.mean, g.covariance())


ALL_FAMILIES = pytest.mark.parametrize("make", [maker(f) for f in FAMILIES.values()], ids=list(FAMILIES))


class Data:
    """Random arguments for every operation."""

    def __init__(self, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.x = jnp.array(rng.normal(size=(N, D)))
        self.y = jnp.array(rng.normal(size=(K, N, D)))
        self.rows = jnp.array(rng.integers(K, size=N))
        self.v = jnp.array(rng.normal(size=(K, D)))
        self.by = jnp.array(rng.uniform(0.1, 2, K))
        self.G = symmetrise(jnp.array(rng.normal(size=(K, D, D))))
        self.positive = jnp.array(rng.uniform(0.2, 3, (K, D)))
        self.w = jnp.array(rng.normal(size=(N, K)))
        self.r = jax.nn.softmax(self.w, axis=1)
        self.gradients = jnp.array(rng.normal(size=(N, D)))
        self.log_weights = jax.nn.log_softmax(jnp.array(rng.normal(size=K)))
        self.mask = jnp.array([True, False, True])
