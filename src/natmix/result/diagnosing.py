"""The diagnosis of a result: by the samples it has, by more of them, and by searches outside them."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from natmix.checks import as_int
from natmix.diagnostics.budget import affordable_chains, affordable_climbs, climb_evaluations, climb_seconds
from natmix.diagnostics.diagnosis import Diagnosis, diagnose
from natmix.diagnostics.draws import Draws
from natmix.diagnostics.elbo import evaluated_draws
from natmix.diagnostics.exploration import BRIEF_STEPS, Exploration, explore
from natmix.diagnostics.mode_search import Hunt, hunt
from natmix.random_keys import run_key
from natmix.targets import TargetError

if TYPE_CHECKING:
    from natmix.result.result import Result


FEWEST_CHAINS = 50
"""Of fewer none may come by what is lacking."""


def number_of_chains(explore: Any) -> int | None:
    """As a user gives it; None for as many as are affordable."""
    chains = _number(explore, "explore", "chains")
    if chains is not None and 0 < chains < FEWEST_CHAINS:
        raise ValueError(f"explore is a number of chains, at least {FEWEST_CHAINS}, got {chains}.")
    return chains


def number_of_climbs(search: Any) -> int | None:
    """As a user gives it; None for as many as are affordable."""
    return _number(search, "search", "climbs")


def _number(value: Any, name: str, things: str) -> int | None:
    if isinstance(value, str) and value == "auto":
        return None
    if value is False:
        return 0
    try:
        return as_int(value, name, 0)
    except ValueError as error:
        raise ValueError(
            f'{name} is a number of {things}, 0 or False for none, or "auto", got {value!r}.'
        ) from error


def by_samples(result: "Result") -> Diagnosis | None:
    """By the samples behind the ELBO alone, without an evaluation; None if there are none."""
    if result.draws is None or len(result.draws) < 2:
        return None
    return diagnose(result.mixture, result.draws, stopped=result.stopped)


def diagnosed(result: "Result", samples: int, climbs: int | None, chains: int | None, seed: int) -> Diagnosis:
    """`Result.diagnose`; ``climbs`` and ``chains`` are None for as many as are affordable."""
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
    hunted, unsearched = (None, "")
    if climbs is None:
        hunted, unsearched = _affordable_hunt(result, first, key_hunt, seed)
    elif climbs:
        hunted = _hunted(result, first.log_evidence.value, key_hunt, climbs)
    if hunted is not None and hunted.missed:
        first = diagnose(result.mixture, draws, hunted, stopped=result.stopped)
    key = jax.random.fold_in(key_hunt, 3)
    explored, unexplored = (None, "")
    if chains is None:
        explored, unexplored = _affordable(result, first, key, seed)
    elif chains:
        explored = _explored(result, draws, key, chains)
    return diagnose(result.mixture, draws, hunted, explored, result.stopped, unexplored, unsearched)


def _affordable_hunt(
    result: "Result", first: Diagnosis, key: jax.Array, seed: int
) -> tuple[Hunt | None, str]:
    """What climbs found that were not asked for, or why there are none."""
    before: Diagnosis | None = result.__dict__.get("diagnosis")
    if before is not None and before.hunt is not None and seed == 0:
        return before.hunt, ""
    if first.verdict == "distrust":
        return None, "the verdict is known without it"
    climbs, why = affordable_climbs(result)
    if not climbs or result.target is None:
        return None, why
    if result.start is None:
        return None, "the start region is not known here"
    log_z = first.log_evidence.value
    limits = climb_evaluations(result), climb_seconds(result)
    try:
        found = hunt(result.mixture, result.target, result.start, log_z, key, climbs, *limits)
    except TargetError as error:
        return None, f"broken off. {error}"
    if not found.starts:
        return None, f"no climb ended within {found.evaluations:,} evaluations"
    return found, ""


def _affordable(
    result: "Result", first: Diagnosis, key: jax.Array, seed: int
) -> tuple[Exploration | None, str]:
    """What chains found that were not asked for, or why there are none."""
    before: Diagnosis | None = result.__dict__.get("diagnosis")
    if before is not None and before.exploration is not None and seed == 0:
        return before.exploration, ""
    if first.verdict == "distrust":
        return None, "the verdict is known without them"
    chains, why = affordable_chains(result)
    if not chains or result.target is None or result.draws is None:
        return None, why
    try:
        return explore(result.mixture, result.target, result.draws, key, chains, BRIEF_STEPS), ""
    except TargetError as error:
        return None, f"broken off. {error}"


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
