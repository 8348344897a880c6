"""A Gaussian mixture for a set of points: expectation maximisation, the number of components by BIC."""

import numpy as np
from jaxtyping import Float

from natmix.initialization.expectation_maximisation import (
    Clusters,
    Covariances,
    WeightedPoints,
    bic,
    expectation_maximisation,
    moments,
)

_MAX_ITERATIONS, _RESTARTS = 50, 3
_RIDGE = 1e-3
"""This share of the points' variances is added to those of every component."""


def cluster(x: Float[np.ndarray, "N D"], max_components: int, rng: np.random.Generator) -> Clusters:
    """Fit at most ``max_components`` Gaussians, each with more points than dimensions."""
    N, D = x.shape
    scale = np.maximum(x.std(axis=0), np.finfo(float).tiny)
    centre = x.mean(axis=0)
    points = WeightedPoints((x - centre) / scale, np.ones(N))
    best, lowest = moments(points, np.ones((N, 1)), _with_ridge), np.inf
    for k in range(1, max(1, min(max_components, N // (2 * (D + 1)))) + 1):
        for _ in range(1 if k == 1 else _RESTARTS):
            nearest = np.eye(k)[_nearest_of_distant_points(points.y, k, rng)]
            found = expectation_maximisation(points, nearest, _with_ridge, _MAX_ITERATIONS)
            criterion = bic(points, found, k * (1 + D + D * (D + 1) / 2) - 1)
            if criterion < lowest:
                best, lowest = found, criterion
    return Clusters(best.weights, centre + best.means * scale, best.covariances * np.outer(scale, scale))


def _with_ridge(covariances: Covariances, counts: Float[np.ndarray, " K"]) -> Covariances:
    return covariances + _RIDGE * np.eye(covariances.shape[-1])


def _nearest_of_distant_points(y: Float[np.ndarray, "N D"], k: int, rng: np.random.Generator) -> np.ndarray:
    """The nearest of k points that are far from each other, chosen as k-means++ does."""
    N = len(y)
    distances = [np.sum((y - y[rng.choice(N, 1)]) ** 2, axis=1)]
    while len(distances) < k:
        distance = np.min(distances, axis=0)
        distances.append(np.sum((y - y[rng.choice(N, 1, p=distance / distance.sum())]) ** 2, axis=1))
    return np.argmin(distances, axis=0)
