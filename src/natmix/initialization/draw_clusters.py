"""A Gaussian mixture for draws of a distribution, however few there are: groups are split again and again."""

import numpy as np
from jaxtyping import Float, Int

from natmix.initialization.expectation_maximisation import (
    Clusters,
    Covariances,
    WeightedPoints,
    bic,
    expectation_maximisation,
    log_joint,
    moments,
)

MIN_POINTS = 5
"""Different draws of a component."""
_MAX_POINTS, _MAX_NUMBERS = 4000, 60_000
"""Evenly spaced draws are taken if there are more of them, or of their numbers."""
_SPLIT_ITERATIONS, _ITERATIONS = 20, 50
_SMALLEST_SHRINKAGE = 1e-6
"""Correlations are shrunk at least by this share: covariances of few points have full rank then."""
_SMALLEST_VARIANCE = 1e-12
"""Of a component, as a share of the variance of all points."""


def cluster_draws(x: Float[np.ndarray, "N D"], max_components: int) -> Clusters:
    """Fit at most ``max_components`` Gaussians to draws.

    A group of draws is split in two where that lowers the BIC, with one covariance for both (distant modes of
    similar shape are told apart by few draws) or with one for each. In the end all components have the same
    covariance or their own, whichever has the lower BIC, shrunk towards its diagonal (`_shrunk`).

    Args:
        x: draws, not all the same in any coordinate.
        max_components: at least 1.
    """
    most = min(len(x), _MAX_POINTS, _MAX_NUMBERS // x.shape[1])
    x = x[np.linspace(0, len(x) - 1, most).astype(int)]
    unique, counts = np.unique(x, axis=0, return_counts=True)
    scale, centre = np.maximum(x.std(axis=0), np.finfo(float).tiny), x.mean(axis=0)
    points = WeightedPoints((unique - centre) / scale, counts * (len(unique) / len(x)))
    labels = _groups(points, max_components)
    best, lowest = moments(points, np.ones((len(unique), 1)), _tied), np.inf
    for groups in (labels, np.zeros_like(labels)) if labels.any() else (labels,):
        found, criterion = _fitted(points, groups, _ITERATIONS)
        if criterion < lowest:
            best, lowest = found, criterion
    return Clusters(best.weights, centre + best.means * scale, best.covariances * np.outer(scale, scale))


def _groups(points: WeightedPoints, max_components: int) -> Int[np.ndarray, " N"]:
    """The group of every point; no group has a split that lowers the BIC, unless there are enough groups."""
    labels = np.zeros(len(points.y), int)
    waiting = [0]
    while waiting and labels.max() + 1 < max_components:
        chosen = np.flatnonzero(labels == waiting[0])
        second = _split(WeightedPoints(points.y[chosen], points.counts[chosen]))
        if second is None:
            waiting.pop(0)
            continue
        new = labels.max() + 1
        labels[chosen[second]] = new
        waiting.append(new)
    return labels


def _split(points: WeightedPoints) -> Int[np.ndarray, " S"] | None:
    """The points of the second half of a group, if a split lowers the BIC."""
    if len(points.y) < 2 * MIN_POINTS:
        return None
    _, whole = _fitted(points, np.zeros(len(points.y), int), 0)
    found, halves = _fitted(points, _two_sides(points.y).astype(int), _SPLIT_ITERATIONS)
    if halves >= whole:
        return None
    second = np.argmax(log_joint(points.y, found), axis=1) == 1
    sizes = second.sum(), (~second).sum()
    return np.flatnonzero(second) if min(sizes) >= MIN_POINTS else None


def _two_sides(y: Float[np.ndarray, "N D"]) -> np.ndarray:
    """On which side of a plane each point is.

    The plane is orthogonal to the coordinate or principal axis along which two halves have the least variance
    within, in relation to the whole: 1 - 2 / pi of a Gaussian, next to nothing of two distant modes.
    """
    centred = y - y.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2]
    along = np.concatenate([centred, centred @ axes.T], axis=1)
    ordered = np.sort(along, axis=0)
    N = len(y)
    first = np.arange(1, N)[:, None]
    sums = np.cumsum(ordered, axis=0)[:-1]
    between = sums**2 / (first * (N - first))  # of two sides of a centred sample
    total = np.maximum(np.mean(ordered**2, axis=0), np.finfo(float).tiny)
    enough = slice(MIN_POINTS - 1, N - MIN_POINTS)
    share = between[enough] / total
    place, axis = np.unravel_index(np.argmax(share), share.shape)
    return along[:, axis] > ordered[place + MIN_POINTS - 1, axis]


def _fitted(points: WeightedPoints, labels: Int[np.ndarray, " N"], iterations: int) -> tuple[Clusters, float]:
    """One component for every group, with covariances by the better rule, and the BIC."""
    k, D = labels.max() + 1, points.y.shape[1]
    best, lowest = None, np.inf
    for rule, matrices in ((_tied, 1), (_shrunk, k)):
        if best is not None and (k == 1 or np.bincount(labels).min() < D + 1):
            break
        found = expectation_maximisation(points, np.eye(k)[labels], rule, iterations)
        criterion = bic(points, found, k * (1 + D) - 1 + matrices * D * (D + 1) / 2)
        if best is None or criterion < lowest:
            best, lowest = found, criterion
    assert best is not None
    return best, lowest


def _tied(covariances: Covariances, counts: Float[np.ndarray, " K"]) -> Covariances:
    """The pooled covariance for every component."""
    pooled = np.einsum("k,kij->ij", counts / counts.sum(), covariances)
    one = _shrunk(pooled[None], np.maximum(counts.sum(keepdims=True) - len(counts), 1))
    return np.broadcast_to(one, covariances.shape)


def _shrunk(covariances: Covariances, counts: Float[np.ndarray, " K"]) -> Covariances:
    """Correlations shrunk towards 0 by the oracle approximating shrinkage of Chen et al. (2010)."""
    D = covariances.shape[-1]
    variances = np.maximum(np.diagonal(covariances, axis1=1, axis2=2), _SMALLEST_VARIANCE)
    sd = np.sqrt(variances)
    scales = sd[:, :, None] * sd[:, None, :]
    correlations = covariances / scales
    squared = np.sum(correlations**2, axis=(1, 2))
    numerator = (1 - 2 / D) * squared + D**2
    denominator = (counts + 1 - 2 / D) * np.maximum(squared - D, np.finfo(float).tiny)
    share = np.clip(numerator / denominator, _SMALLEST_SHRINKAGE, 1.0)[:, None, None]
    return ((1 - share) * correlations * (1 - np.eye(D)) + np.eye(D)) * scales
