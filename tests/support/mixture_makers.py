"""Mixtures and points for the tests of `Mixture`."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from natmix import Mixture

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
    if q.covariance_family == "diagonal":
        variances = np.diagonal(q.covariances, axis1=1, axis2=2)
        return Mixture.diagonal(w, means, np.concatenate([variances[:1] * 2, variances]))
    return Mixture.full(w, means, np.concatenate([q.covariances[:1] * 2, q.covariances]))


REPRESENTATIONS = pytest.mark.parametrize("make", [full, diagonal])
