"""A Gaussian mixture for a set of points: expectation maximisation, the number of components by BIC."""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

_MAX_ITERATIONS, _RESTARTS = 50, 3
_RIDGE = 1e-3
"""This share of the points' variances is added to those of every component."""


class Clusters(NamedTuple):
    """Weights, means and covariances of a Gaussian mixture."""

    weights: Float[np.ndarray, " K"]
    means: Float[np.ndarray, "K D"]
    covariances: Float[np.ndarray, "K D D"]


def cluster(x: Float[np.ndarray, "N D"], max_components: int, rng: np.random.Generator) -> Clusters:
    """Fit at most ``max_components`` Gaussians, each with more points than dimensions."""
    N, D = x.shape
    scale = np.maximum(x.std(axis=0), np.finfo(float).tiny)
    centre = x.mean(axis=0)
    y = (x - centre) / scale
    best, lowest_bic = _one(y), np.inf
    for k in range(1, max(1, min(max_components, N // (2 * (D + 1)))) + 1):
        candidates = [_one(y)] if k == 1 else [_expectation_maximisation(y, k, rng) for _ in range(_RESTARTS)]
        for found in candidates:
            parameters = k * (1 + D + D * (D + 1) / 2) - 1
            bic = parameters * np.log(N) - 2 * float(
                np.sum(scipy.special.logsumexp(_log_joint(y, found), axis=1))
            )
            if bic < lowest_bic:
                best, lowest_bic = found, bic
    covariances = best.covariances * np.outer(scale, scale)
    return Clusters(best.weights, centre + best.means * scale, covariances)


def _one(y: Float[np.ndarray, "N D"]) -> Clusters:
    D = y.shape[1]
    return Clusters(np.ones(1), y.mean(axis=0)[None], (y.T @ y / len(y) + _RIDGE * np.eye(D))[None])


def _expectation_maximisation(y: Float[np.ndarray, "N D"], k: int, rng: np.random.Generator) -> Clusters:
    N = len(y)
    means = y[rng.choice(N, 1)]
    while len(means) < k:  # initialise as k-means++ does
        distance = np.min(np.sum((y[:, None] - means) ** 2, axis=2), axis=1)
        means = np.vstack([means, y[rng.choice(N, 1, p=distance / distance.sum())]])
    nearest = np.argmin(np.sum((y[:, None] - means) ** 2, axis=2), axis=1)
    responsibilities = np.eye(k)[nearest]
    for _ in range(_MAX_ITERATIONS):
        found = _moments(y, responsibilities)
        log_joint = _log_joint(y, found)
        new = np.exp(log_joint - scipy.special.logsumexp(log_joint, axis=1, keepdims=True))
        if np.max(np.abs(new - responsibilities)) < 1e-3:
            break
        responsibilities = new
    return _moments(y, responsibilities)


def _moments(y: Float[np.ndarray, "N D"], responsibilities: Float[np.ndarray, "N K"]) -> Clusters:
    D = y.shape[1]
    counts = responsibilities.sum(axis=0) + 1e-9
    means = (responsibilities.T @ y) / counts[:, None]
    centred = y[:, None] - means
    covariances = np.einsum("nk,nki,nkj->kij", responsibilities, centred, centred, optimize=True)
    return Clusters(counts / counts.sum(), means, covariances / counts[:, None, None] + _RIDGE * np.eye(D))


def _log_joint(y: Float[np.ndarray, "N D"], c: Clusters) -> Float[np.ndarray, "N K"]:
    out = []
    for weight, mean, covariance in zip(*c, strict=True):
        L = np.linalg.cholesky(covariance)
        z = np.linalg.solve(L, (y - mean).T)
        out.append(np.log(weight) - 0.5 * np.sum(z * z, axis=0) - np.sum(np.log(np.diag(L))))
    return np.stack(out, axis=1) - 0.5 * y.shape[1] * np.log(2 * np.pi)
