"""Searches outside of the mixture's own samples: for other modes, and for mass that is not covered."""

import dataclasses
import time
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from natmix.array_types import PRNGKey
from natmix.diagnostics.budget import EVALUATIONS_PER_RUN, MAX_CHAINS, MAX_RUNS, MIN_CHAINS, MIN_RUNS
from natmix.diagnostics.chains import ChainsLateError
from natmix.diagnostics.diagnosis import Diagnosis, diagnose
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.exploration import (
    NO_SIGN,
    SHORT_CHAIN_STEPS,
    Exploration,
    chain_evaluations,
    explore,
)
from natmix.diagnostics.look_back import unexplained_points
from natmix.diagnostics.mode_search import MANY_PROBES, MOST_PROBES, ModeSearch, search_modes
from natmix.diagnostics.population_search import search_without_gradients
from natmix.diagnostics.search_problem import SearchProblem
from natmix.interrupts import Interrupted
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget, JaxTarget, TargetError
from natmix.targets.failures import FAILURES, as_target_error

_SOUND_GAP, _SOUND_K_HAT = 0.003, 0.5
"""Up to this KL(q || p), two standard errors included, and up to this k-hat no chains are started: necks and
tails that a mixture does not cover show in one of them first."""
_LOOK_BACK_QUANTILE = 0.05
"""A stored sample is unexplained only if its density is above this quantile of the mixture's samples."""
_MOST_FOR_CHAINS = 0.85
"""Where the fewest chains would take more of a search's evaluations, none are left for them."""
_MAX_STARTS = 16
"""L-BFGS runs from unexplained stored samples."""


class Repair(NamedTuple):
    """What a verification found, and the fit has added components for.

    Attributes:
        iteration: after which it happened.
        components: that were added.
        by: "mode search" or "chains".
    """

    iteration: int
    components: int
    by: str


@dataclasses.dataclass(frozen=True)
class Verification:
    """What the searches of a fit found in the mixture that it returns.

    Attributes:
        mode_search: for modes that the mixture does not cover; None if there was none.
        exploration: by Markov chains next to the mixture's samples; None if there was none.
        not_searched: why there was no mode search.
        not_explored: why there were no chains.
        evaluations: of the target, by all searches of the fit.
        repairs: what earlier searches of the fit found and was repaired.
        unrepaired: why what the last search found was not repaired; empty if it found nothing.
    """

    mode_search: ModeSearch | None = None
    exploration: Exploration | None = None
    not_searched: str = ""
    not_explored: str = ""
    evaluations: int = 0
    repairs: tuple[Repair, ...] = ()
    unrepaired: str = ""


class StoredSamples(NamedTuple):
    """Samples that a fit has evaluated before.

    Attributes:
        x: the samples.
        log_target: log p~ there.
    """

    x: Float[np.ndarray, "N D"]
    log_target: Float[np.ndarray, " N"]


def verify(
    mixture: Mixture,
    draws: EvaluatedDraws,
    target: AbstractTarget,
    region: Mixture,
    stored: StoredSamples | None,
    key: PRNGKey,
    max_evaluations: int,
    max_seconds: float = np.inf,
    before: ModeSearch | None = None,
) -> Verification:
    """Search for what the mixture's samples cannot show, within a number of evaluations.

    Args:
        mixture: to verify.
        draws: samples of it, with known target density.
        target: what it approximates.
        region: one Gaussian, the initial region.
        stored: samples that the fit has evaluated before, if it has kept any.
        key: of all random numbers.
        max_evaluations: of the target.
        max_seconds: after which the target is evaluated no more.
        before: an earlier search of the same fit; this one starts with half of its probes.
    """
    if isinstance(target, JaxTarget) and target.stochastic:
        why = "the target's values are random"
        return Verification(not_searched=why, not_explored=why)
    first = diagnose(mixture, draws)
    if not np.isfinite(first.log_evidence.value):
        why = "no sample of the mixture has a usable density"
        return Verification(not_searched=why, not_explored=why)
    key_search, key_chains = jax.random.split(key)
    deadline = time.monotonic() + max_seconds
    log_z = first.log_evidence.value
    for_chains = 0 if _no_chains_because(target, first) else _reserved(max_evaluations, len(draws))
    most = max_evaluations - for_chains
    problem = SearchProblem(mixture, target, region, log_z, key_search, most, max_seconds)
    search, not_searched, spent = _search(problem, draws, stored, before)
    exploration, not_explored = None, "the mode search found something first"
    if time.monotonic() >= deadline:
        not_explored = "the time limit was reached"
    elif search is None or not search.missed:
        try:
            exploration, not_explored, chain_cost = _explore(
                mixture, draws, target, first, key_chains, max_evaluations - spent, deadline
            )
        except KeyboardInterrupt as error:
            raise Interrupted(spent + getattr(error, "evaluations", 0)) from error
        spent += chain_cost
    return Verification(search, exploration, not_searched, not_explored, spent)


def _search(
    problem: SearchProblem,
    draws: EvaluatedDraws,
    stored: StoredSamples | None,
    before: ModeSearch | None,
) -> tuple[ModeSearch | None, str, int]:
    """What it found, why nothing, and its evaluations."""
    if problem.max_seconds <= 0:
        return None, "the time limit was reached", 0
    most = problem.max_evaluations
    assert most is not None
    runs = min(most // EVALUATIONS_PER_RUN, MAX_RUNS)
    if runs < MIN_RUNS:
        return None, f"{MIN_RUNS} runs would cost more evaluations than are left for it", 0
    try:
        if not problem.target.has_gradient:
            seen = None if stored is None else (stored.x, stored.log_target)
            found = search_without_gradients(problem, seen)
        else:
            starts = None if stored is None else _unexplained(problem, draws, stored)
            probed = 0 if before is None else min(sum(before.hits) // 2, most // 4)
            near = min(MOST_PROBES, max(MANY_PROBES, most // 4))
            found = search_modes(problem, runs, starts, probed=probed, widen=True, near_probes=near)
    except TargetError as error:
        return None, f"it failed. {error}", error.evaluations
    if not found.runs:
        return None, "no run ended within its evaluations", found.evaluations
    return found, "", found.evaluations


def _unexplained(
    problem: SearchProblem, draws: EvaluatedDraws, stored: StoredSamples
) -> Float[np.ndarray, "S D"]:
    """Stored samples of high density that the mixture does not explain, the highest first."""
    finite = draws.log_target[np.isfinite(draws.log_target)]
    least = float(np.quantile(finite, _LOOK_BACK_QUANTILE))
    log_z = problem.log_evidence
    chosen = unexplained_points(problem.mixture, stored.x, stored.log_target, log_z, least)
    return stored.x[chosen[np.argsort(-stored.log_target[chosen])][:_MAX_STARTS]]


def _no_chains_because(target: AbstractTarget, first: Diagnosis) -> str:
    """Why chains would tell nothing; empty if they might."""
    if not target.has_gradient:
        return "without gradients short chains do not get far"
    if first.verdict == "distrust":
        return "the verdict is clear without them"
    gap = first.gap
    if gap.value + 2 * gap.standard_error <= _SOUND_GAP and first.k_hat <= _SOUND_K_HAT:
        return NO_SIGN
    return ""


def _reserved(max_evaluations: int, samples: int) -> int:
    """Evaluations that a mode search leaves to the chains: of the fewest, if they leave something to it."""
    cost = chain_evaluations(MIN_CHAINS, SHORT_CHAIN_STEPS, samples)
    return cost if cost <= _MOST_FOR_CHAINS * max_evaluations else 0


def _explore(
    mixture: Mixture,
    draws: EvaluatedDraws,
    target: AbstractTarget,
    first: Diagnosis,
    key: PRNGKey,
    max_evaluations: int,
    deadline: float,
) -> tuple[Exploration | None, str, int]:
    """What they found, why there are none, and their evaluations."""
    why = _no_chains_because(target, first)
    if why:
        return None, why, 0
    chains = max(
        (
            n
            for n in range(MIN_CHAINS, MAX_CHAINS + 1)
            if chain_evaluations(n, SHORT_CHAIN_STEPS, len(draws)) <= max_evaluations
        ),
        default=0,
    )
    if not chains:
        return None, f"{MIN_CHAINS} of them would cost more evaluations than are left for them", 0
    try:
        left = deadline - time.monotonic()
        found = explore(mixture, target, draws, key, chains, SHORT_CHAIN_STEPS, left)
    except ChainsLateError as late:
        return None, "the time limit was reached", late.evaluations
    except FAILURES as error:
        spent = chain_evaluations(chains, SHORT_CHAIN_STEPS, len(draws))
        return None, f"they failed. {as_target_error(error)}", spent
    return found, "", found.evaluations
