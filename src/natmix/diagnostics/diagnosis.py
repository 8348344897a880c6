"""How good an approximation a fitted mixture is, from its samples with known target density."""

import dataclasses
import inspect
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.evidence import SampleEvidence, gather_evidence
from natmix.diagnostics.exploration import Exploration
from natmix.diagnostics.judgement import TOLERATED_SHARE, Outside, judge
from natmix.diagnostics.label_switching import LabelSwitching, label_switching
from natmix.diagnostics.mode_search import ModeSearch
from natmix.diagnostics.modes import Mode, corrected_modes, mode_membership
from natmix.diagnostics.moments import UnreliableMoment, unreliable_moments
from natmix.diagnostics.remedies import ALL_REMEDIES, Remedies
from natmix.diagnostics.variables import Variables, variables_at
from natmix.diagnostics.wording import verdict_lines
from natmix.estimate import Estimate
from natmix.mixture import Mixture
from natmix.models import AbstractModel
from natmix.text.html import block, headline, paragraph, preformatted

ENDED_EARLY = {
    "max_iterations": "stopped at the limit of iterations, before it had converged",
    "max_evaluations": "stopped at the limit of evaluations, before it had converged",
    "max_seconds": "stopped at the time limit, before it had converged",
    "callback": "was stopped by the callback, before it had converged",
    "interrupted": "was interrupted",
    "failed": "was ended by an error of the target",
}
"""By `Result.stopped`."""


@dataclasses.dataclass(frozen=True, repr=False)
class Diagnosis:
    """The verdict on a fit and the numbers behind it; printing it shows both.

    Attributes:
        verdict: "trust"; "unsearched" (good where it has samples; other modes or tails were not searched);
            "proposal" (use it with `Result.resample`); "undecided" (too few samples, or too few digits); or
            "distrust".
        reasons: why, one sentence each.
        k_hat: the Pareto shape of the tail of the importance weights.
        k_limit: the k-hat up to which estimates from that many samples are reliable.
        hidden: the share of the total mass that weights larger than those seen may have, see
            `SmoothedWeights.hidden`.
        effective_samples: (sum w)^2 / sum w^2 of the smoothed weights.
        samples: the number of samples used.
        log_evidence: log Z by importance sampling with smoothed weights, given that no mode is unseen. Its
            error includes what the tail of the weights may hide, and rounding.
        elbo: on the same samples; -inf if the density is zero at one of them.
        gap: KL(q' || p) with its standard error; q' is the mixture where the target's density is positive.
        modes: with their shares in the mixture and by importance sampling.
        mode_search: what a search for missed modes found, if there was one.
        exploration: what Markov chains from the mixture's samples found, if there were any.
        stopped: why the fit ended, as in `Result.stopped`; empty if unknown.
        not_explored: why there were no chains, unless they were switched off.
        not_searched: why there was no mode search, unless it was switched off.
        zero_share: the share of samples where the target's density is zero.
        positions: of the modes, as text: the variables that tell them apart.
        label_switching: modes that are permutations of each other.
        unreliable: variables whose mean or standard deviation is not reliable.
        remedies: what can be advised.
    """

    verdict: str
    reasons: tuple[str, ...]
    k_hat: float
    k_limit: float
    hidden: float
    effective_samples: float
    samples: int
    log_evidence: Estimate
    elbo: Estimate
    gap: Estimate
    modes: tuple[Mode, ...]
    mode_search: ModeSearch | None = None
    exploration: Exploration | None = None
    stopped: str = ""
    not_explored: str = ""
    not_searched: str = ""
    zero_share: float = 0.0
    positions: tuple[str, ...] = ()
    label_switching: LabelSwitching | None = None
    unreliable: tuple[UnreliableMoment, ...] = ()
    remedies: Remedies = ALL_REMEDIES

    @property
    def trusted(self) -> bool:
        """Whether the mixture is safe to use as it is: good by its samples, and no other mode was found."""
        return self.verdict == "trust"

    def __str__(self) -> str:
        return "\n".join(verdict_lines(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *lines = verdict_lines(self)
        numbers = inspect.cleandoc("\n".join(["", *lines[len(self.reasons) :]]))
        return block(headline(first), *map(paragraph, self.reasons), preformatted(numbers))


def diagnose(
    mixture: Mixture,
    draws: EvaluatedDraws,
    mode_search: ModeSearch | None = None,
    exploration: Exploration | None = None,
    stopped: str = "",
    not_explored: str = "",
    not_searched: str = "",
    *,
    model: AbstractModel | None = None,
    remedies: Remedies = ALL_REMEDIES,
) -> Diagnosis:
    """Judge a mixture by its samples, and by searches for what these cannot show.

    Args:
        mixture: to be judged.
        draws: its samples.
        mode_search: what a search for missed modes found.
        exploration: what Markov chains found.
        stopped: why the fit ended, as in `Result.stopped`.
        not_explored: why there were no chains.
        not_searched: why there was no mode search.
        model: whose variables are named; coordinates if left out.
        remedies: what can be advised.
    """
    evidence = gather_evidence(draws)
    described = _describe(mixture, draws, evidence, model)
    missed = mode_search.missed[0].position if mode_search is not None and mode_search.missed else None
    uncovered = None if exploration is None else exploration.position
    outside = Outside(mode_search, _place(model, missed), exploration, _place(model, uncovered))
    own = tuple(zip(described.modes, described.positions, strict=True))
    verdict, reasons = judge(evidence, own, outside, remedies, early=stopped in ENDED_EARLY)
    if stopped in ENDED_EARLY:
        reasons = (*reasons, f"The fit {ENDED_EARLY[stopped]}: a longer one may be better.")
    return Diagnosis(
        verdict=verdict,
        reasons=reasons,
        k_hat=evidence.tail.k_hat,
        k_limit=evidence.k_limit,
        hidden=evidence.tail.hidden,
        effective_samples=evidence.effective_samples,
        samples=evidence.samples,
        log_evidence=evidence.log_evidence,
        elbo=evidence.elbo,
        gap=evidence.gap,
        modes=described.modes,
        mode_search=mode_search,
        exploration=exploration,
        stopped=stopped,
        not_explored=not_explored,
        not_searched=not_searched,
        zero_share=evidence.zero_share,
        positions=described.positions,
        label_switching=described.label_switching,
        unreliable=described.unreliable if verdict != "undecided" else (),
        remedies=remedies,
    )


class _Described(NamedTuple):
    """What can be said about modes and variables."""

    modes: tuple[Mode, ...]
    positions: tuple[str, ...]
    label_switching: LabelSwitching | None
    unreliable: tuple[UnreliableMoment, ...]


def _describe(
    mixture: Mixture, draws: EvaluatedDraws, evidence: SampleEvidence, model: AbstractModel | None
) -> _Described:
    """The modes by name, and the variables whose moments are not reliable."""
    if not evidence.effective_samples > 1:
        return _Described((), (), None, ())
    usable = draws.log_target < np.inf
    variables = variables_at(model, draws.x)
    variables = dataclasses.replace(variables, values=variables.values[usable])
    membership = mode_membership(mixture, draws.x[usable])
    modes = corrected_modes(mixture, membership, evidence.weights)
    inside = membership.samples * evidence.weights[:, None]
    major = [i for i, m in enumerate(modes) if max(m.share, m.corrected_share) >= TOLERATED_SHARE]
    switching = label_switching(variables, inside[:, major]) if len(major) > 1 else None
    if switching is not None:  # numbered among all modes
        groups = tuple(tuple(major[i] for i in group) for group in switching.modes)
        switching = switching._replace(modes=groups)
    positions = _positions(variables, modes, membership.samples, evidence.weights)
    return _Described(modes, positions, switching, unreliable_moments(variables, evidence.weights))


def _positions(
    variables: Variables,
    modes: tuple[Mode, ...],
    inside: Float[np.ndarray, "N M"],
    weights: Float[np.ndarray, " N"],
) -> tuple[str, ...]:
    """Every mode by the variables that separate the modes most; of a mode without weight its raw mean."""
    if not variables.named:
        points = np.stack([m.mean for m in modes])
    else:
        mass = inside * np.where(weights @ inside > 0, weights[:, None], 1.0)
        values = np.where(np.isfinite(variables.values), variables.values, 0.0)
        points = (mass.T @ values) / np.maximum(mass.sum(axis=0), np.finfo(float).tiny)[:, None]
    values = variables.values
    shares = np.array([m.share for m in modes])
    between = shares @ (points - shares @ points) ** 2
    total = np.maximum(np.var(values, axis=0), np.finfo(float).tiny)
    order = np.argsort(-np.nan_to_num(between / total), kind="stable")
    return tuple(variables.text(p, order) for p in points)


def _place(model: AbstractModel | None, x: Float[np.ndarray, " D"] | None) -> str:
    """A point by name; empty without one."""
    if x is None:
        return ""
    at = variables_at(model, np.asarray(x, float)[None])
    return at.text(at.values[0])
