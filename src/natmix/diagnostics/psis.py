"""Pareto smoothed importance sampling (PSIS), its diagnostic k-hat, and the effective sample size.

A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry: Pareto smoothed importance sampling, JMLR 2024. The
tail's shape is fitted as in J. Zhang, M. Stephens: A new and efficient estimation method for the generalized
Pareto distribution, Technometrics 2009.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

MIN_TAIL = 5
"""The smallest number of weights to which a tail is fitted."""
_PRIOR_SHAPE, _PRIOR_STRENGTH = 0.5, 10
"""The shape is regularised towards 0.5 with the weight of ten observations."""
_EQUAL = 1e-3
"""Weights that differ by less than this count as equal: the shape of their tail would be that of rounding
errors."""
_SHAPE_ERRORS = 1.5
"""Standard errors, about (1 + k) / sqrt(m), by which the shape of a tail may be larger than estimated."""
_QUARTER_SCALE = 3
"""The scale of Zhang and Stephens' grid, in multiples of the tail's first quartile."""


class SmoothedWeights(NamedTuple):
    """Importance weights whose tail is replaced by the expected order statistics of a fitted distribution.

    Attributes:
        log_weights: the given log weights with a smoothed tail; not normalised.
        k_hat: the shape of the fitted tail; the weights have finite moments up to 1/k. Infinite where no
            finite tail can be fitted.
        hidden: the share of the total weight that larger weights than those seen would add if there were
            ten times as many samples and the tail continued as fitted. Negligible for a heavy tail that
            starts at negligible weights; 0 if the largest weights differ by less than a thousandth.
        hidden_at_most: the same for a tail that is heavier by one and a half standard errors of its shape.
    """

    log_weights: Float[np.ndarray, " N"]
    k_hat: float
    hidden: float
    hidden_at_most: float = np.inf


def k_hat_limit(samples: int) -> float:
    """The largest k-hat at which estimates from so many samples, and their errors, are reliable."""
    return min(1 - 1 / np.log10(max(samples, 11)), 0.7)


def tail_size(samples: int) -> int:
    """How many of so many weights are the tail."""
    return int(np.ceil(min(0.2 * samples, 3 * np.sqrt(samples))))


def pareto_smooth(log_weights: Float[np.ndarray, " N"], tail: int | None = None) -> SmoothedWeights:
    """Fit a generalised Pareto distribution to the largest weights and smooth them.

    Args:
        log_weights: log importance weights.
        tail: how many are smoothed; min(n/5, 3 sqrt(n)) if left out.
    """
    given = np.asarray(log_weights, dtype=float)
    n = given.size
    tail = tail_size(n) if tail is None else tail
    order = np.argsort(given, kind="stable")
    if tail < MIN_TAIL or n <= tail or not np.isfinite(given[order[-1]]):
        return SmoothedWeights(given, np.inf, np.inf)
    top = given[order[-1]]
    largest = order[-tail:]
    cut = max(given[order[-tail - 1]] - top, np.log(np.finfo(float).tiny))
    excess = np.exp(given[largest] - top) - np.exp(cut)
    above = excess > 0
    equal = excess[-1] < _EQUAL
    if above.sum() < MIN_TAIL:  # the largest weights are equal: a tail of length zero
        return SmoothedWeights(given, *((-np.inf, 0.0, 0.0) if equal else (np.inf, np.inf, np.inf)))
    k, scale = _fit(excess[above])
    if equal:
        return SmoothedWeights(given, k, 0.0, 0.0)
    if not np.isfinite(k):
        return SmoothedWeights(given, k, np.inf)
    out = given.copy()
    m = int(above.sum())
    quantiles = (np.arange(m) + 0.5) / m
    out[largest[above]] = np.minimum(np.log(_quantile(quantiles, k, scale) + np.exp(cut)), 0) + top
    # Tail probabilities that ten times as many samples would reach.
    beyond = np.logspace(-1, 0, 50) / m
    heavier = k + _SHAPE_ERRORS * (1 + max(k, 0)) / np.sqrt(m + _PRIOR_STRENGTH)
    total = float(np.mean(np.exp(out - top))) * n / m
    hidden, at_most = (
        float(np.trapezoid(_quantile(1 - beyond, shape, scale), beyond)) / total for shape in (k, heavier)
    )
    return SmoothedWeights(out, k, hidden, at_most)


def _fit(x: Float[np.ndarray, " M"]) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution for sorted positive numbers."""
    m = x.size
    grid = 30 + int(np.sqrt(m))
    quartile = x[int(m / 4 + 0.5) - 1]
    b = 1 / x[-1] + (1 - np.sqrt(grid / (np.arange(grid) + 0.5))) / (_QUARTER_SCALE * quartile)
    shapes = np.mean(np.log1p(-b[:, None] * x), axis=1)
    # Where b is zero the distribution is exponential, and -b / shape has the limit 1 / mean.
    rates = np.divide(-b, shapes, out=np.full_like(b, 1 / np.mean(x)), where=shapes != 0)
    log_likelihood = m * (np.log(rates) - shapes - 1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    b_mean = float(np.sum(b * weight) / np.sum(weight))
    shape = float(np.mean(np.log1p(-b_mean * x)))
    scale = -shape / b_mean if shape != 0 else float(np.mean(x))
    regularised = (m * shape + _PRIOR_STRENGTH * _PRIOR_SHAPE) / (m + _PRIOR_STRENGTH)
    return (regularised, scale) if np.isfinite(regularised) and scale > 0 else (np.inf, scale)


def _quantile(p: Float[np.ndarray, " M"], k: float, scale: float) -> Float[np.ndarray, " M"]:
    log_left = -np.log1p(-p)
    return scale * log_left if abs(k) < 1e-12 else scale * np.expm1(k * log_left) / k


def log_mean_exp(log_weights: Float[np.ndarray, " N"]) -> float:
    """The log of the mean of exp(log_weights), without overflow."""
    largest = float(np.max(log_weights, initial=-np.inf))
    if not np.isfinite(largest):
        return largest
    return largest + float(np.log(np.mean(np.exp(log_weights - largest))))


def relative_ess(log_weights: Float[np.ndarray, " N"]) -> float:
    """The effective sample size per sample, (sum w)^2 / (n sum w^2); 0 without a positive weight."""
    square = log_mean_exp(2 * log_weights)
    return float(np.exp(2 * log_mean_exp(log_weights) - square)) if np.isfinite(square) else 0.0
