"""Where a mode search starts: around the initial region, and around the modes known so far."""

import numpy as np
from jaxtyping import Float

from natmix.mixture import Mixture

REACH = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Starting points are drawn from the initial region, made so many times as wide, in turn.

With 32 runs, two Gaussians as wide as the region and in 2 and 10 dimensions, the second one was found in 32
of 32 searches at 30 and 50 times that width, in 15 of 16 at 100, in 12 of 16 at 200 and in 1 of 16 at 500
(benchmarks/quality/missed_modes.py).
"""
_FARTHER = (1.0, 3.0, 10.0)
_FAR = 30.0
"""If a known mode is more than `_FAR` widths of the region away, the region does not tell the scale of the
target. Then starting points are also drawn from the region made so many times as wide as that distance."""
_SPREAD = (1.0, 1.5, 3.0)
"""Starting points are also drawn where all known modes suggest another one, made so many times as wide."""
_PROBE_SPREAD = (0.7, 1.0, 1.4)
"""The same for points at which only the value is asked for."""
_MIN_SHRINKAGE, _MANY = 0.1, 5
"""The covariance of the modes' centres is shrunk towards a multiple of I: all of it for up to one mode per
dimension, whose centres say nothing about the other directions, and by `_MIN_SHRINKAGE` from `_MANY` on."""


def reach(region: Mixture, centres: Float[np.ndarray, "M D"]) -> tuple[float, ...]:
    """How many times as wide the initial region is made: `REACH`, and more if known modes are far outside."""
    L = np.linalg.cholesky(np.asarray(region.covariances[0], float))
    steps = np.linalg.solve(L, (centres - np.asarray(region.means[0], float)).T)
    distance = float(np.sqrt(np.mean(steps**2, axis=0).max(initial=0.0)))
    return (*REACH, *(r * distance for r in _FARTHER)) if distance > _FAR else REACH


def around_region(
    region: Mixture, centres: Float[np.ndarray, "M D"], n: int, rng: np.random.Generator
) -> Float[np.ndarray, "n D"]:
    """Samples of the initial region, made wider by the factors in `reach` in turn."""
    L = np.linalg.cholesky(np.asarray(region.covariances[0], float))
    steps = rng.normal(size=(n, len(L))) @ L.T
    return np.asarray(region.means[0], float) + np.resize(reach(region, centres), n)[:, None] * steps


def around_modes(
    centres: Float[np.ndarray, "M D"], n: int, rng: np.random.Generator
) -> Float[np.ndarray, "n D"]:
    """Samples of the Gaussian that the centres of at least two modes have as mean and covariance."""
    return _samples(centres, np.resize(_SPREAD, n), rng)


def probes(
    region: Mixture, centres: Float[np.ndarray, "M D"], n: int, rng: np.random.Generator
) -> Float[np.ndarray, "n D"]:
    """Points at which only the value is asked for: one evaluation tells if the mixture explains it."""
    if len(centres) < 2:
        return around_region(region, centres, n, rng)
    return _samples(centres, np.resize(_PROBE_SPREAD, n), rng)


def _samples(
    centres: Float[np.ndarray, "M D"], widths: Float[np.ndarray, " n"], rng: np.random.Generator
) -> Float[np.ndarray, "n D"]:
    """Where another mode may be, given these: samples of Student's t, made so many times as wide.

    Few centres tell little about how far apart modes are. The predictive distribution of another one has
    (M + 1) / (M - 1) times the covariance of the M known ones, and as many degrees of freedom as these have
    coordinates beside their mean.
    """
    mean, covariance = gaussian_of_modes(centres)
    (M, D), n = centres.shape, len(widths)
    L = np.sqrt((M + 1) / (M - 1)) * np.linalg.cholesky(covariance)
    freedom = (M - 1) * D
    tails = np.sqrt(freedom / rng.chisquare(freedom, n))
    return mean + (widths * tails)[:, None] * (rng.normal(size=(n, D)) @ L.T)


def gaussian_of_modes(
    centres: Float[np.ndarray, "M D"],
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, "D D"]]:
    """Mean and covariance of the centres of at least two modes, the covariance shrunk."""
    M, D = centres.shape
    centred = centres - centres.mean(axis=0)
    covariance = centred.T @ centred / M
    isotropic = np.trace(covariance) / D * np.eye(D)
    share = float(np.clip((_MANY - M / D) / (_MANY - 1), _MIN_SHRINKAGE, 1.0))
    return centres.mean(axis=0), (1 - share) * covariance + share * isotropic
