"""Importance resampling: samples of the mixture, drawn by their importance weights."""

import warnings
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float, Int

from natmix.checks import as_int
from natmix.diagnostics import HIDDEN_SHARE, SmoothedWeights, k_hat_limit, pareto_smooth
from natmix.diagnostics.elbo import evaluated_draws
from natmix.random_keys import run_key

if TYPE_CHECKING:
    from natmix.result.result import Result


MIN_POOL = 1000
"""The smallest default pool, large enough to judge its weights."""
_MIN_JUDGED = 100
"""With fewer samples k-hat says nothing: it is fitted to a fifth of them at most."""


def resample(result: "Result", n: int, pool: int, seed: int) -> Float[np.ndarray, "n D"]:
    """``n`` of ``pool`` fresh samples, drawn by their importance weights."""
    assert result.target is not None
    n, pool = as_int(n, "n"), as_int(pool, "pool")
    if pool < n:
        raise ValueError(f"resample() needs n >= 1 and a pool of at least n samples, got {n} and {pool}.")
    key = run_key(seed)
    draws = evaluated_draws(result.mixture, result.target, jax.random.fold_in(key, 1), pool)
    usable = np.flatnonzero((draws.log_target < np.inf) & (draws.log_target > -np.inf))
    if not usable.size:
        raise ValueError("No sample of the mixture has a positive, finite density: it cannot be corrected.")
    invalid = int(np.sum(~(draws.log_target < np.inf)))
    if invalid:
        warnings.warn(
            f"The log density is NaN or +inf at {invalid} of {pool} samples of the mixture. They are left "
            "out: corrected draws say nothing about that part of the space.",
            stacklevel=3,
        )
    smoothed = pareto_smooth(draws.log_ratio[usable])
    warn_if_unreliable(smoothed, usable.size, stacklevel=4)
    return draws.x[usable[resample_indices(smoothed.log_weights, n, seed)]]


def warn_if_unreliable(smoothed: SmoothedWeights, pool: int, stacklevel: int) -> None:
    """Warn if the weights of so many samples show that mass is missed, or are too few to show it."""
    if pool < _MIN_JUDGED:
        warnings.warn(
            f"A pool of {pool} is too small to judge and correct by importance weights: use at least "
            f"{MIN_POOL} samples.",
            stacklevel=stacklevel,
        )
        return
    limit = k_hat_limit(pool)
    if smoothed.k_hat > limit and smoothed.hidden > HIDDEN_SHARE:
        warnings.warn(
            f"k-hat is {smoothed.k_hat:.2f}, above {limit:.2f}: the target has far more mass somewhere than "
            "the mixture, and even corrected draws miss it. Fit longer, or from another initial region.",
            stacklevel=stacklevel,
        )


def resample_indices(log_weights: Float[np.ndarray, " N"], n: int, seed: int) -> Int[np.ndarray, " n"]:
    """Indices of systematic resampling by these weights, in random order.

    The samples are ordered by weight first: samples of equal weights get their share of the draws up to one.
    """
    order = np.argsort(log_weights, kind="stable")
    weights = np.exp(log_weights[order] - log_weights.max())
    rng = np.random.default_rng(seed)
    quantiles = (np.arange(n) + rng.uniform()) / n
    chosen = np.searchsorted(np.cumsum(weights) / weights.sum(), quantiles)
    return rng.permutation(order[np.minimum(chosen, len(weights) - 1)])
