"""Expectation maximisation of a Gaussian mixture for weighted points, with a rule for its covariances."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

Covariances = Float[np.ndarray, "K D D"]
CovarianceRule = Callable[[Covariances, Float[np.ndarray, " K"]], Covariances]
"""The covariances of the components, from those of their points and the numbers of these."""


class Clusters(NamedTuple):
    """Weights, means and covariances of a Gaussian mixture."""

    weights: Float[np.ndarray, " K"]
    means: Float[np.ndarray, "K D"]
    covariances: Float[np.ndarray, "K D D"]


class WeightedPoints(NamedTuple):
    """WeightedPoints, and how often each occurs."""

    y: Float[np.ndarray, "N D"]
    counts: Float[np.ndarray, " N"]


def expectation_maximisation(
    points: WeightedPoints, responsibilities: Float[np.ndarray, "N K"], rule: CovarianceRule, iterations: int
) -> Clusters:
    """From initial responsibilities of the components for the points."""
    for _ in range(iterations):
        log_p = log_joint(points.y, moments(points, responsibilities, rule))
        new = np.exp(log_p - scipy.special.logsumexp(log_p, axis=1, keepdims=True))
        if np.max(np.abs(new - responsibilities)) < 1e-3:
            break
        responsibilities = new
    return moments(points, responsibilities, rule)


def moments(
    points: WeightedPoints, responsibilities: Float[np.ndarray, "N K"], rule: CovarianceRule
) -> Clusters:
    """The mixture for these responsibilities."""
    weighted = responsibilities * points.counts[:, None]
    counts = weighted.sum(axis=0) + 1e-9
    means = (weighted.T @ points.y) / counts[:, None]
    centred = points.y - means[:, None]
    covariances = np.matmul((weighted.T[:, :, None] * centred).transpose(0, 2, 1), centred)
    return Clusters(counts / counts.sum(), means, rule(covariances / counts[:, None, None], counts))


def log_joint(y: Float[np.ndarray, "N D"], c: Clusters) -> Float[np.ndarray, "N K"]:
    """The log densities of the components, times their weights."""
    L = np.linalg.cholesky(c.covariances)
    inverse = np.linalg.solve(L, np.broadcast_to(np.eye(y.shape[1]), L.shape))
    z = np.matmul(y - c.means[:, None], inverse.transpose(0, 2, 1))
    log_det = np.sum(np.log(np.diagonal(L, axis1=1, axis2=2)), axis=1)
    log_p = np.log(c.weights)[:, None] - 0.5 * np.sum(z * z, axis=2) - log_det[:, None]
    return log_p.T - 0.5 * y.shape[1] * np.log(2 * np.pi)


def bic(points: WeightedPoints, found: Clusters, parameters: float) -> float:
    """Schwarz's criterion; the lower the better."""
    log_p = scipy.special.logsumexp(log_joint(points.y, found), axis=1)
    return float(parameters * np.log(points.counts.sum()) - 2 * points.counts @ log_p)
