"""Pareto smoothed importance sampling: how heavy is the tail of the weights?

A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry: Pareto smoothed importance sampling, JMLR 2024. The
tail's shape is fitted as in J. Zhang, M. Stephens: A new and efficient estimation method for the generalized
Pareto distribution, Technometrics 2009.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_FEWEST = 5
"""Weights that a tail must have to be fitted."""
_PRIOR_SHAPE, _PRIOR_STRENGTH = 0.5, 10
"""The shape is drawn towards 0.5 with the weight of ten observations."""
_LEVEL = 1e-3
"""Weights that differ by less than this are level: the shape of their tail is that of rounding errors."""
_QUARTER_SCALE = 3
"""Of Zhang and Stephens' grid: multiples of the tail's first quartile."""


class Smoothed(NamedTuple):
    """Importance weights whose largest have been replaced by what a fitted tail expects in their places.

    Attributes:
        log_weights: as given, but for the tail; their exponentials need not sum to one.
        k_hat: shape of the fitted tail; the weights have moments up to 1/k. Infinite when there is no
            finite tail to fit.
        hidden: what weights larger than those seen would add to the sum of all, as a share of it, if there
            were ten times as many samples and the tail went on as fitted. A heavy tail that starts next
            to nothing stays next to nothing; zero if the largest weights differ by less than a thousandth.
    """

    log_weights: Float[np.ndarray, " N"]
    k_hat: float
    hidden: float


def reliable_below(samples: int) -> float:
    """The largest k-hat at which so many samples give estimates with errors as they claim."""
    return min(1 - 1 / np.log10(max(samples, 11)), 0.7)


def pareto_smooth(log_weights: Float[np.ndarray, " N"]) -> Smoothed:
    """Fit a generalized Pareto distribution to the largest min(n/5, 3 sqrt(n)) weights and smooth them."""
    given = np.asarray(log_weights, dtype=float)
    n = given.size
    tail = int(np.ceil(min(0.2 * n, 3 * np.sqrt(n))))
    order = np.argsort(given, kind="stable")
    if tail < _FEWEST or n <= tail or not np.isfinite(given[order[-1]]):
        return Smoothed(given, np.inf, np.inf)
    top = given[order[-1]]
    largest = order[-tail:]
    cut = max(given[order[-tail - 1]] - top, np.log(np.finfo(float).tiny))
    excess = np.exp(given[largest] - top) - np.exp(cut)
    above = excess > 0
    level = excess[-1] < _LEVEL
    if above.sum() < _FEWEST:  # the large weights are equal: a tail of no length
        return Smoothed(given, *((-np.inf, 0.0) if level else (np.inf, np.inf)))
    k, scale = _fit(excess[above])
    if level:
        return Smoothed(given, k, 0.0)
    if not np.isfinite(k):
        return Smoothed(given, k, np.inf)
    out = given.copy()
    m = int(above.sum())
    places = (np.arange(m) + 0.5) / m
    out[largest[above]] = np.minimum(np.log(_quantile(places, k, scale) + np.exp(cut)), 0) + top
    # Probabilities within the tail: of what ten times the samples would show besides.
    beyond = np.logspace(-1, 0, 50) / m
    hidden = np.trapezoid(_quantile(1 - beyond, k, scale), beyond) * m / n
    return Smoothed(out, k, float(hidden / np.mean(np.exp(out - top))))


def _fit(x: Float[np.ndarray, " M"]) -> tuple[float, float]:
    """Shape and scale of a generalized Pareto distribution for sorted positive numbers."""
    m = x.size
    grid = 30 + int(np.sqrt(m))
    quartile = x[int(m / 4 + 0.5) - 1]
    b = 1 / x[-1] + (1 - np.sqrt(grid / (np.arange(grid) + 0.5))) / (_QUARTER_SCALE * quartile)
    shapes = np.mean(np.log1p(-b[:, None] * x), axis=1)
    log_likelihood = m * (np.log(-b / shapes) - shapes - 1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    b_mean = float(np.sum(b * weight) / np.sum(weight))
    shape = float(np.mean(np.log1p(-b_mean * x)))
    scale = -shape / b_mean
    pulled = (m * shape + _PRIOR_STRENGTH * _PRIOR_SHAPE) / (m + _PRIOR_STRENGTH)
    return (pulled, scale) if np.isfinite(pulled) and scale > 0 else (np.inf, scale)


def _quantile(p: Float[np.ndarray, " M"], k: float, scale: float) -> Float[np.ndarray, " M"]:
    log_left = -np.log1p(-p)
    return scale * log_left if abs(k) < 1e-12 else scale * np.expm1(k * log_left) / k
