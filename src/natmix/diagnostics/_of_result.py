"""A diagnosis with more effort than a fit makes by itself."""

from typing import TYPE_CHECKING

import jax
import numpy as np

from natmix._draws import Draws
from natmix._evaluate import evaluated_draws
from natmix._keys import run_key
from natmix._whole import whole
from natmix.diagnostics._diagnosis import Diagnosis, diagnose
from natmix.diagnostics._explore import Exploration, explore
from natmix.diagnostics._missed import Hunt, hunt

if TYPE_CHECKING:
    from natmix._result import Result


FEWEST_CHAINS = 50
"""Of fewer none may come by what is lacking."""


def diagnosed(result: "Result", samples: int, search: int, chains: int, seed: int) -> Diagnosis:
    """`Result.diagnose`."""
    if search < 0:
        raise ValueError(f"search is a number of climbs, not negative, got {search}.")
    if whole(chains, "explore", 0) and chains < FEWEST_CHAINS:
        raise ValueError(f"explore is a number of chains, at least {FEWEST_CHAINS}, got {chains}.")
    key_draws, key_hunt = jax.random.split(run_key(seed))
    draws = result.draws
    if samples:
        if result.target is None:
            raise ValueError(
                "This result does not know its target, which diagnose(samples=...) has to evaluate."
            )
        # Not the samples of the ELBO again, whatever the seed.
        fresh = evaluated_draws(result.mixture, result.target, jax.random.fold_in(key_draws, 7), samples)
        draws = fresh if draws is None else draws.joined(fresh)
    if draws is None or len(draws) < 2:
        raise ValueError("There are no samples to judge by: ask for some, as in diagnose(samples=2000).")
    first = diagnose(result.mixture, draws, stopped=result.stopped)
    if not search and not chains:
        return first
    hunted = _hunted(result, first.log_evidence.value, key_hunt, search) if search else None
    explored = _explored(result, draws, jax.random.fold_in(key_hunt, 3), chains) if chains else None
    return diagnose(result.mixture, draws, hunted, explored, result.stopped)


def _explored(result: "Result", draws: Draws, key: jax.Array, chains: int) -> Exploration:
    if result.target is None:
        raise ValueError("This result does not know its target, which diagnose(explore=...) has to evaluate.")
    if not np.isfinite(draws.log_target).any():
        raise ValueError("No sample of the mixture has a positive density: chains have nowhere to start.")
    return explore(result.mixture, result.target, draws, key, chains)


def _hunted(result: "Result", log_evidence: float, key: jax.Array, starts: int) -> Hunt:
    if result.target is None or result.start is None:
        raise ValueError("This result does not know its target and start, which diagnose(search=...) needs.")
    if not result.target.has_gradient:
        raise ValueError(
            "diagnose(search=...) climbs by gradients, and the target has none: compare fits with several "
            "seeds instead."
        )
    return hunt(result.mixture, result.target, result.start, log_evidence, key, starts)
