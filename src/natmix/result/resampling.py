"""Corrected draws: samples of the mixture, drawn again by their importance weights."""

import warnings
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float, Int

from natmix.checks import as_int
from natmix.diagnostics import HIDDEN_SHARE, Smoothed, pareto_smooth, reliable_below
from natmix.diagnostics.elbo import evaluated_draws
from natmix.random_keys import run_key

if TYPE_CHECKING:
    from natmix.result.result import Result


SMALLEST_POOL = 1000
"""Evaluated even for few draws, so that their weights can be judged."""
_TOO_FEW = 100
"""Of fewer samples k-hat is anybody's guess: it is fitted to a fifth of them at most."""


def resampled(result: "Result", n: int, pool: int, seed: int) -> Float[np.ndarray, "n D"]:
    """``n`` draws out of ``pool`` fresh ones, by their weights."""
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
            f"The log density is NaN or +inf at {invalid} of {pool} samples of the mixture: they are left "
            "out, and corrected draws say nothing about what lies there.",
            stacklevel=3,
        )
    smoothed = pareto_smooth(draws.log_ratio[usable])
    warn_if_unreliable(smoothed, usable.size, stacklevel=4)
    return draws.x[usable[drawn_by_weight(smoothed.log_weights, n, seed)]]


def warn_if_unreliable(smoothed: Smoothed, pool: int, stacklevel: int) -> None:
    """Where the weights of so many samples show that they lack mass, or cannot show it."""
    if pool < _TOO_FEW:
        warnings.warn(
            f"{pool} samples are too few to judge their importance weights by, and to correct much: "
            f"allow a pool of {SMALLEST_POOL}.",
            stacklevel=stacklevel,
        )
        return
    limit = reliable_below(pool)
    if smoothed.k_hat > limit and smoothed.hidden > HIDDEN_SHARE:
        warnings.warn(
            f"k-hat is {smoothed.k_hat:.2f}, above {limit:.2f}: somewhere there is far more mass than the "
            "mixture gives it, and even corrected draws miss it. Fit longer, or from other starts.",
            stacklevel=stacklevel,
        )


def drawn_by_weight(log_weights: Float[np.ndarray, " N"], n: int, seed: int) -> Int[np.ndarray, " n"]:
    """Which samples are drawn, by systematic resampling in random order."""
    weights = np.exp(log_weights - log_weights.max())
    rng = np.random.default_rng(seed)
    places = (np.arange(n) + rng.uniform()) / n
    chosen = np.searchsorted(np.cumsum(weights) / weights.sum(), places)
    return rng.permutation(np.minimum(chosen, len(weights) - 1))
