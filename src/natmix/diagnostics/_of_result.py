"""A diagnosis with more effort than a fit makes by itself."""

from typing import TYPE_CHECKING

import jax

from natmix._arguments import run_key
from natmix._evaluate import evaluated_draws
from natmix.diagnostics._diagnosis import Diagnosis, diagnose
from natmix.diagnostics._missed import Hunt, hunt

if TYPE_CHECKING:
    from natmix._result import Result


def diagnosed(result: "Result", samples: int, search: int, seed: int) -> Diagnosis:
    """`Result.diagnose`."""
    if search < 0:
        raise ValueError(f"search is a number of climbs, not negative, got {search}.")
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
    first = diagnose(result.mixture, draws)
    if not search:
        return first
    return diagnose(result.mixture, draws, _hunted(result, first.log_evidence.value, key_hunt, search))


def _hunted(result: "Result", log_evidence: float, key: jax.Array, starts: int) -> Hunt:
    if result.target is None or result.start is None:
        raise ValueError("This result does not know its target and start, which diagnose(search=...) needs.")
    if not result.target.has_gradient:
        raise ValueError(
            "diagnose(search=...) climbs by gradients, and the target has none: compare fits with several "
            "seeds instead."
        )
    return hunt(result.mixture, result.target, result.start, log_evidence, key, starts)
