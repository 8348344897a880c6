"""Probabilities under the target, by importance weights."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from natmix.checks import as_int
from natmix.diagnostics import pareto_smooth
from natmix.diagnostics.elbo import evaluated_draws
from natmix.estimate import Estimate
from natmix.random_keys import run_key
from natmix.result.distribution import as_box
from natmix.result.probability import event_probability, truth
from natmix.result.resampling import warn_if_unreliable

if TYPE_CHECKING:
    from natmix.result.result import Result


def corrected_probability(
    result: "Result",
    event: Callable[[dict[str, np.ndarray]], Any] | Mapping[str, Any],
    n: int | None,
    seed: int,
) -> Estimate:
    """By smoothed importance weights of the draws behind the ELBO, or of ``n`` others."""
    draws = result.draws
    if n is not None:
        result._check_target("prob(corrected=True) with n")
        assert result.target is not None
        key = jax.random.fold_in(run_key(seed), 13)
        draws = evaluated_draws(result.mixture, result.target, key, as_int(n, "n", 2))
    if draws is None or len(draws) < 2:
        raise ValueError("There are no draws with known log density: ask for some, as in n=10_000.")
    if callable(event):
        holds = truth(event, result._names.draws(draws.x), len(draws))
    else:
        low, high = result._names.box(as_box(event))
        holds = np.all((draws.x > low) & (draws.x < high), axis=1)
    usable = np.isfinite(draws.log_target)
    if not usable.any():
        raise ValueError("No sample of the mixture has a positive, finite density: it cannot be corrected.")
    smoothed = pareto_smooth(draws.log_ratio[usable])
    warn_if_unreliable(smoothed, int(usable.sum()), stacklevel=4)
    weights = np.exp(smoothed.log_weights - smoothed.log_weights.max())
    return event_probability(holds[usable], weights / weights.sum())
