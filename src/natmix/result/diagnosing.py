"""`Result.diagnose`: by the samples of the result, by fresh ones, and by searches outside of them."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from natmix.checks import as_int
from natmix.diagnostics.budget import EVALUATIONS_PER_RUN, DiagnosticBudget
from natmix.diagnostics.diagnosis import Diagnosis, diagnose
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import evaluated_draws
from natmix.diagnostics.exploration import SHORT_CHAIN_STEPS, Exploration, explore
from natmix.diagnostics.mode_search import MOST_PROBES, ModeSearch, search_modes
from natmix.diagnostics.population_search import search_without_gradients
from natmix.diagnostics.remedies import CLEAR, Remedies
from natmix.diagnostics.search_problem import SearchProblem
from natmix.random_keys import run_key
from natmix.targets import JaxTarget, TargetError

if TYPE_CHECKING:
    from natmix.result.result import Result


MIN_CHAINS = 50
"""The smallest number of chains: fewer might all miss what is not covered."""

_FAILED = "failed."
_DECIDED = {
    "distrust": f"{CLEAR} {{}}",
    "undecided": "the samples do not suffice to judge by, with {} or without",
}
"""Verdicts by samples alone that no search can mend."""


def number_of_chains(explore: Any) -> int | None:
    """The user's number of Markov chains; None for as many as the budget allows."""
    chains = _number(explore, "explore", "chains")
    if chains is not None and 0 < chains < MIN_CHAINS:
        raise ValueError(f"explore is a number of chains, at least {MIN_CHAINS}, got {chains}.")
    return chains


def number_of_runs(search: Any) -> int | None:
    """The user's number of L-BFGS runs; None for as many as the budget allows."""
    return _number(search, "search", "L-BFGS runs")


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


def diagnose_samples(result: "Result") -> Diagnosis | None:
    """The diagnosis by the samples behind the ELBO alone, without evaluations; None if there are none."""
    if result.draws is None or len(result.draws) < 2:
        return None
    return diagnosis_by(result, result.draws)


def known_diagnosis(result: "Result") -> Diagnosis | None:
    """The diagnosis if it is there or costs no evaluation, otherwise that by the samples alone."""
    if "diagnosis" in vars(result) or result.verification is not None:
        return result.diagnosis
    return diagnose_samples(result)


def diagnosis_by(
    result: "Result",
    draws: EvaluatedDraws,
    mode_search: ModeSearch | None = None,
    exploration: Exploration | None = None,
    not_explored: str = "",
    not_searched: str = "",
) -> Diagnosis:
    """The verdict on a result by these samples and searches, with names and advice that suit it."""
    return diagnose(
        result.mixture,
        draws,
        mode_search,
        exploration,
        result.stopped,
        not_explored,
        not_searched,
        model=result.model,
        remedies=remedies_for(result, failed=_FAILED in not_searched or _FAILED in not_explored),
    )


def remedies_for(result: "Result", failed: bool = False) -> Remedies:
    """What can be advised for this result; nothing that evaluates a target that has just ``failed``."""
    target = None if failed else result.target
    float64 = np.dtype(result.mixture.dtype) != np.float64
    if target is None:
        return Remedies(evaluate=False, search=False, explore=False, float64=float64)
    random = isinstance(target, JaxTarget) and target.stochastic
    return Remedies(
        evaluate=True,
        search=result.start is not None and not random,
        explore=target.has_gradient and not random,
        float64=float64,
    )


def diagnostic_budget(result: "Result") -> DiagnosticBudget:
    """What the default diagnosis of this result may cost."""
    return DiagnosticBudget(
        fit_evaluations=result.counts.evaluations,
        fit_seconds=result.timings.total,
        samples=0 if result.draws is None else len(result.draws),
        stopped=result.stopped,
        target=result.target,
    )


def diagnose_result(
    result: "Result", samples: int, runs: int | None, chains: int | None, seed: int
) -> Diagnosis:
    """`Result.diagnose`; ``runs`` and ``chains`` are None for as many as the budget allows."""
    key_draws, key_search = jax.random.split(run_key(seed))
    draws = _with_fresh_draws(result, samples, key_draws)
    made = result.verification
    if made is not None and runs is None and chains is None and seed == 0:
        found = made.mode_search, made.exploration, made.not_explored, made.not_searched
        return diagnosis_by(result, draws, *found)
    first = diagnose(result.mixture, draws, stopped=result.stopped)
    mode_search, not_searched = (None, "")
    if runs is None:
        mode_search, not_searched = _default_search(result, first, key_search, seed)
    elif runs:
        mode_search = _asked_search(result, first.log_evidence.value, key_search, runs)
    if mode_search is not None and mode_search.missed:
        first = dataclasses.replace(first, verdict="distrust")
    key = jax.random.fold_in(key_search, 3)
    exploration, not_explored = (None, "")
    if chains is None:
        exploration, not_explored = _default_exploration(result, first, key, seed)
    elif chains:
        exploration = _asked_exploration(result, draws, key, chains)
    return diagnosis_by(result, draws, mode_search, exploration, not_explored, not_searched)


def _with_fresh_draws(result: "Result", samples: int, key: jax.Array) -> EvaluatedDraws:
    draws = result.draws
    if samples:
        if result.target is None:
            raise ValueError(
                "This result does not know its target, which diagnose(samples=...) has to evaluate."
            )
        # Other samples than those of the ELBO, whatever the seed.
        fresh = evaluated_draws(result.mixture, result.target, jax.random.fold_in(key, 7), samples)
        draws = fresh if draws is None else draws.joined(fresh)
    if draws is None or len(draws) < 2:
        raise ValueError("There are no samples to judge by: ask for some, as in diagnose(samples=2000).")
    return draws


def _default_search(
    result: "Result", first: Diagnosis, key: jax.Array, seed: int
) -> tuple[ModeSearch | None, str]:
    """The mode search of a default diagnosis, or why there is none."""
    before: Diagnosis | None = result.__dict__.get("diagnosis")
    if before is not None and before.mode_search is not None and seed == 0:
        return before.mode_search, ""
    if first.verdict in _DECIDED:
        return None, _DECIDED[first.verdict].format("it")
    budget = diagnostic_budget(result)
    runs, why = budget.runs()
    if not runs or result.target is None:
        return None, why
    if result.start is None:
        return None, "the initial region is not known here"
    log_z = first.log_evidence.value
    problem = SearchProblem(
        result.mixture,
        result.target,
        result.start,
        log_z,
        key,
        budget.run_evaluations,
        budget.run_seconds if result.target.has_gradient else np.inf,
    )
    try:
        if result.target.has_gradient:
            found = search_modes(problem, runs, near_probes=MOST_PROBES)
        else:
            found = search_without_gradients(problem)
    except TargetError as error:
        return None, f"it {_FAILED} {error}"
    if not found.runs:
        return None, f"no L-BFGS run ended within {found.evaluations:,} evaluations"
    return found, ""


def _default_exploration(
    result: "Result", first: Diagnosis, key: jax.Array, seed: int
) -> tuple[Exploration | None, str]:
    """The Markov chains of a default diagnosis, or why there are none."""
    before: Diagnosis | None = result.__dict__.get("diagnosis")
    if before is not None and before.exploration is not None and seed == 0:
        return before.exploration, ""
    if first.verdict in _DECIDED:
        return None, _DECIDED[first.verdict].format("them")
    chains, why = diagnostic_budget(result).chains()
    if not chains or result.target is None or result.draws is None:
        return None, why
    try:
        return explore(result.mixture, result.target, result.draws, key, chains, SHORT_CHAIN_STEPS), ""
    except TargetError as error:
        return None, f"they {_FAILED} {error}"


def _asked_exploration(result: "Result", draws: EvaluatedDraws, key: jax.Array, chains: int) -> Exploration:
    if result.target is None:
        raise ValueError("This result does not know its target, which diagnose(explore=...) has to evaluate.")
    if not np.isfinite(draws.log_target).any():
        raise ValueError("No sample of the mixture has a positive density: chains have nowhere to start.")
    return explore(result.mixture, result.target, draws, key, chains)


def _asked_search(result: "Result", log_evidence: float, key: jax.Array, runs: int) -> ModeSearch:
    if result.target is None or result.start is None:
        raise ValueError(
            "This result does not know its target and initial region, which diagnose(search=...) needs."
        )
    most = runs * EVALUATIONS_PER_RUN
    problem = SearchProblem(result.mixture, result.target, result.start, log_evidence, key)
    if not result.target.has_gradient:
        return search_without_gradients(problem._replace(max_evaluations=most))
    return search_modes(problem, runs, near_probes=most)
