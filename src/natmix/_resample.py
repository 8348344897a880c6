"""Corrected draws: samples of the mixture, drawn again by their importance weights."""

import warnings
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float

from natmix._evaluate import evaluated_draws
from natmix._keys import run_key
from natmix._whole import whole
from natmix.diagnostics import HIDDEN_SHARE, pareto_smooth, reliable_below

if TYPE_CHECKING:
    from natmix._result import Result


def resampled(result: "Result", n: int, pool: int, seed: int) -> Float[np.ndarray, "n D"]:
    """``n`` draws out of ``pool`` fresh ones, by systematic resampling in random order."""
    assert result.target is not None
    n, pool = whole(n, "n"), whole(pool, "pool")
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
    limit = reliable_below(usable.size)
    if smoothed.k_hat > limit and smoothed.hidden > HIDDEN_SHARE:
        warnings.warn(
            f"k-hat is {smoothed.k_hat:.2f}, above {limit:.2f}: somewhere there is far more mass than the "
            "mixture gives it, and even corrected draws miss it. Fit longer, or from other starts.",
            stacklevel=3,
        )
    weights = np.exp(smoothed.log_weights - smoothed.log_weights.max())
    rng = np.random.default_rng(seed)
    places = (np.arange(n) + rng.uniform()) / n
    chosen = np.searchsorted(np.cumsum(weights) / weights.sum(), places)
    return draws.x[usable[rng.permutation(np.minimum(chosen, usable.size - 1))]]
