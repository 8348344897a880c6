"""Variables whose mean or standard deviation is not reliable in a fitted mixture, or after correction."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.diagnostics.psis import pareto_smooth
from natmix.diagnostics.variables import Variables

MEAN_SHIFT, SD_FACTOR = 0.1, 1.1
"""A mean that importance weights move by more than this share of a standard deviation, or a standard
deviation that they change by more than this factor, is not reliable: NUTS with 100 effective draws has such
errors."""
_ERRORS = 4.0
"""Standard errors by which a change must differ from zero: a false alarm in 16,000."""
_MAX_K = 0.7
"""The k-hat above which the mean of so heavy-tailed numbers is not reliable, whatever their number."""
_HIDDEN = (0.02, 0.05)
"""The shares of the mean of |x| and of x^2 that numbers larger than those seen may add."""
_MIN_SAMPLES = 1500
"""With fewer the tail of one variable says nothing."""
_MAX_TAILS = 300
"""The tails of so many variables are fitted, at 0.5 ms each."""


class UnreliableMoment(NamedTuple):
    """A moment of a variable that should not be used without correction, or not at all.

    Attributes:
        name: of the variable.
        moment: "mean" or "sd".
        change: by importance weights: of the mean in standard deviations, or the factor of the sd; NaN if the
            tail alone is the reason.
        k_hat: of the terms whose mean the moment is; NaN if the change is the reason.
    """

    name: str
    moment: str
    change: float
    k_hat: float

    def __str__(self) -> str:
        if np.isfinite(self.k_hat):
            return f"{self.moment} of {self.name} (k-hat {self.k_hat:.2f})"
        if self.moment == "mean":
            return f"mean of {self.name} (corrected by {self.change:+.2f} sd)"
        return f"sd of {self.name} (corrected by a factor of {self.change:.2f})"


def unreliable_moments(
    variables: Variables, weights: Float[np.ndarray, " N"]
) -> tuple[UnreliableMoment, ...]:
    """All such moments; ``weights`` are importance weights with a mean of 1."""
    x = variables.values
    n = len(x)
    usable = np.isfinite(x).all(axis=0)
    x = np.where(usable, x, 0.0)
    mean = weights @ x / n
    off = x - mean
    variance = weights @ off**2 / n
    raw_variance = np.var(x, axis=0)
    usable &= (variance > 0) & (raw_variance > 0)
    safe = np.where(usable, variance, 1.0)
    more = (weights - 1)[:, None]
    mean_terms, variance_terms = more * off, more * (off**2 - variance)
    shift = np.mean(mean_terms, axis=0) / np.sqrt(safe)
    moved = _significant(mean_terms) & (np.abs(shift) > MEAN_SHIFT)
    factor = np.sqrt(safe / np.where(usable, raw_variance, 1.0))
    scaled = _significant(variance_terms) & (np.abs(np.log(factor)) > np.log(SD_FACTOR))
    found = []
    for i in np.flatnonzero(usable):
        k_mean, k_sd = _tails(weights, off[:, i]) if n >= _MIN_SAMPLES and i < _MAX_TAILS else (np.nan,) * 2
        for bad, moment, change, k in (
            (moved[i], "mean", shift[i], k_mean),
            (scaled[i], "sd", factor[i], k_sd),
        ):
            if np.isfinite(k):
                found.append(UnreliableMoment(variables.names[i], moment, np.nan, float(k)))
            elif bad:
                found.append(UnreliableMoment(variables.names[i], moment, float(change), np.nan))
    return tuple(found)


def _significant(terms: Float[np.ndarray, "N C"]) -> np.ndarray:
    """Whether the mean of each column differs from zero."""
    with np.errstate(over="ignore", invalid="ignore"):  # of a target that cannot be normalised
        error = np.std(terms, axis=0) / np.sqrt(len(terms))
        return np.asarray(np.abs(np.mean(terms, axis=0)) > _ERRORS * error)


def _tails(weights: Float[np.ndarray, " N"], off: Float[np.ndarray, " N"]) -> tuple[float, float]:
    """K-hat of the terms of mean and variance where it is too large, otherwise NaN."""
    with np.errstate(divide="ignore"):
        log_terms = np.log(np.maximum(weights, 0)) + np.log(np.abs(off))
        log_squares = log_terms + np.log(np.abs(off))
    out = []
    for terms, share in zip((log_terms, log_squares), _HIDDEN, strict=True):
        tail = pareto_smooth(terms)
        heavy = tail.k_hat > _MAX_K and tail.hidden > share
        out.append(tail.k_hat if heavy and np.isfinite(tail.k_hat) else np.nan)
    return out[0], out[1]
