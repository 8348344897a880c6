"""How good an approximation a fitted mixture is, from its samples with known target density."""

import dataclasses
from typing import NamedTuple

import numpy as np

from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.exploration import Exploration
from natmix.diagnostics.mode_search import ModeSearch
from natmix.diagnostics.modes import Mode, modes
from natmix.diagnostics.psis import (
    SmoothedWeights,
    k_hat_limit,
    log_mean_exp,
    pareto_smooth,
    relative_ess,
)
from natmix.diagnostics.wording import kl_text, point_text, verdict_lines
from natmix.estimate import Estimate, counted
from natmix.mixture import Mixture

TRUSTED_GAP = 0.05
"""The largest KL(q || p), in nats, of a good approximation.

For a Gaussian target no mean is then off by more than sqrt(2 KL) = 0.32 standard deviations, and by that
much only if the whole divergence lies in that direction. The estimate counts as larger if it is so by two
standard errors: a good fit is not rejected for the noise of its samples.
"""
MIN_EFFECTIVE_SAMPLES = 50
"""The effective sample size below which importance sampling says nothing: with 50 a mean has an error of 0.14
standard deviations, and the effective sample size itself is not reliable."""
SHARE_ERRORS, SHARE_FACTOR = 3.0, 1.2
"""A mode is underestimated if its corrected share is larger by this factor and by this many standard errors:
a fifth is a difference that matters, and three errors are a false alarm in a thousand."""
HIDDEN_SHARE = 0.005
"""The share of the total mass that unseen weights may have (`SmoothedWeights.hidden`): below it a heavy tail
is negligible. It also holds for the proposal of a fit that stopped at a limit, whatever k-hat: with 2000
samples that is too noisy to tell a Cauchy's tails from light ones."""
CORRECTED_HIDDEN_SHARE = 0.01
"""The same for the proposal of a converged fit: the largest share that importance resampling may miss."""
TOLERATED_SHARE = 0.01
"""The largest share of samples with density zero, or with NaN or +inf. KL(q || p) is infinite with any, but
a hundredth moves no mean by more than `TRUSTED_GAP` does."""

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
        verdict: "trust", "proposal" (use it with `Result.resample`) or "distrust".
        reasons: why, one sentence each.
        k_hat: the Pareto shape of the tail of the importance weights.
        k_limit: the k-hat up to which estimates from that many samples are reliable.
        hidden: the share of the total mass that weights larger than those seen may have, see
            `SmoothedWeights.hidden`.
        effective_samples: (sum w)^2 / sum w^2 of the smoothed weights.
        samples: the number of samples used.
        log_evidence: log Z by importance sampling with smoothed weights; its error is reliable only up to
            ``k_limit``.
        elbo: on the same samples.
        gap: log Z - ELBO = KL(q || p), with its standard error.
        modes: with their shares in the mixture and by importance sampling.
        mode_search: what a search for missed modes found, if there was one.
        exploration: what Markov chains from the mixture's samples found, if there were any.
        stopped: why the fit ended, as in `Result.stopped`; empty if unknown.
        not_explored: why there were no chains, unless they were switched off.
        not_searched: why there was no mode search, unless it was switched off.
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

    @property
    def trusted(self) -> bool:
        """Whether the mixture is safe to use as it is."""
        return self.verdict == "trust"

    def __str__(self) -> str:
        return "\n".join(verdict_lines(self))

    __repr__ = __str__


class _Evidence(NamedTuple):
    """What the samples say."""

    samples: int
    smoothed: SmoothedWeights
    effective_samples: float
    gap: Estimate
    modes: tuple[Mode, ...]
    zero_share: float
    invalid_share: float


def diagnose(
    mixture: Mixture,
    draws: EvaluatedDraws,
    mode_search: ModeSearch | None = None,
    exploration: Exploration | None = None,
    stopped: str = "",
    not_explored: str = "",
    not_searched: str = "",
) -> Diagnosis:
    """Judge a mixture by its samples, and by searches for what these cannot show."""
    usable = draws.log_target < np.inf
    x, log_w = draws.x[usable], draws.log_ratio[usable]
    n = log_w.size
    smoothed = pareto_smooth(log_w)
    log_z = log_mean_exp(smoothed.log_weights) if n else -np.inf
    weights = np.exp(smoothed.log_weights - log_z) if np.isfinite(log_z) else np.zeros(n)
    ess = n * relative_ess(smoothed.log_weights) if n else 0.0
    positive = log_w[np.isfinite(log_w)]
    least = draws.resolution
    elbo = Estimate(
        float(positive.mean()) if positive.size == n > 0 else -np.inf,
        max(float(positive.std(ddof=1) / np.sqrt(positive.size)), least) if positive.size > 1 else np.inf,
    )
    error = max(float(np.std(weights) / np.sqrt(n)), least) if ess > 1 else np.inf
    log_evidence = Estimate(float(log_z), error)
    gap_error = max(_gap_error(weights, log_w), least) if positive.size == n else np.inf
    gap = Estimate(log_evidence.value - elbo.value, gap_error)
    evidence = _Evidence(
        samples=n,
        smoothed=smoothed,
        effective_samples=ess,
        gap=gap,
        modes=modes(mixture, x, weights) if ess > 1 else (),
        zero_share=float(np.mean(draws.log_target == -np.inf)),
        invalid_share=float(np.mean(~usable)),
    )
    verdict, reasons = _judge(evidence, mode_search, exploration, early=stopped in ENDED_EARLY)
    if stopped in ENDED_EARLY:
        reasons = (*reasons, f"The fit {ENDED_EARLY[stopped]}: a longer one may be better.")
    return Diagnosis(
        verdict,
        reasons,
        smoothed.k_hat,
        k_hat_limit(n),
        smoothed.hidden,
        ess,
        n,
        log_evidence,
        elbo,
        gap,
        evidence.modes,
        mode_search,
        exploration,
        stopped,
        not_explored,
        not_searched,
    )


def _gap_error(weights: np.ndarray, log_w: np.ndarray) -> float:
    """The error of log mean w - mean log w, to first order; the two share their samples."""
    return float(np.std(weights - log_w) / np.sqrt(log_w.size)) if log_w.size > 1 else np.inf


def _judge(
    evidence: _Evidence, mode_search: ModeSearch | None, exploration: Exploration | None, *, early: bool
) -> tuple[str, tuple[str, ...]]:
    """The verdict and its reasons."""
    if evidence.samples == 0:
        return "distrust", ("No sample of the mixture has a usable log density.",)
    against = [*_unusable_weights(evidence), *_missed_mass(mode_search, exploration)]
    if against:
        return "distrust", tuple(against)
    inexact = _inexact(evidence)
    hidden = evidence.smoothed.hidden
    if inexact and hidden > (HIDDEN_SHARE if early else CORRECTED_HIDDEN_SHARE):
        unsure = (
            f"About {hidden:.1%} of the total mass may lie where the mixture has no sample yet, too much for "
            "importance weights to correct: fit longer, or judge by more samples, as in "
            "result.diagnose(samples=20_000). Or the target cannot be normalised, which no fit mends."
        )
        return "distrust", (*inexact, unsure)
    if inexact:
        return "proposal", tuple(inexact)
    return "trust", (f"KL(q || p) is {kl_text(evidence.gap)} and the importance weights are well behaved.",)


def _unusable_weights(evidence: _Evidence) -> list[str]:
    """Why the importance weights say nothing good about the mixture, if they do not."""
    n, tail, limit = evidence.samples, evidence.smoothed, k_hat_limit(evidence.samples)
    reasons = []
    if evidence.invalid_share > TOLERATED_SHARE:
        reasons.append(
            f"The log density is NaN or +inf at {evidence.invalid_share:.1%} of the mixture's samples."
        )
    if n < MIN_EFFECTIVE_SAMPLES:
        reasons.append(
            f"Only {counted(n, 'sample')} {'was' if n == 1 else 'were'} evaluated, too few to judge by: "
            "result.diagnose(samples=2000) takes more."
        )
    elif tail.k_hat > limit and tail.hidden > HIDDEN_SHARE:
        reasons.append(
            f"The importance weights have a heavy tail (k-hat {tail.k_hat:.2f}, reliable up to {limit:.2f}): "
            "the mixture is too narrow somewhere, its tails are too light, or the target cannot be "
            "normalised."
        )
    elif evidence.effective_samples < MIN_EFFECTIVE_SAMPLES:
        reasons.append(
            f"The effective sample size is only {evidence.effective_samples:.0f} of {n}: the mixture is far "
            "from the target, or the target cannot be normalised."
        )
    return reasons


def _missed_mass(mode_search: ModeSearch | None, exploration: Exploration | None) -> list[str]:
    """What the mode search and the chains found outside the mixture."""
    reasons = []
    if mode_search is not None and mode_search.missed:
        largest = mode_search.missed[0]
        number = len(mode_search.missed)
        reasons.append(
            f"A search found {counted(number, 'mode')} that the mixture does not cover, the largest with "
            f"about {largest.share:.0%} of the total mass near {point_text(largest.position)}: fit again "
            "with more initial components, a wider initial region, or an initial mixture that covers it."
        )
    if exploration is not None and exploration.significant:
        where = exploration.position
        near = "" if where is None else f", for example near {point_text(where)}"
        reasons.append(
            f"Markov chains from the mixture's corrected samples found {exploration.uncovered.percent()} of "
            f"the total mass where the mixture's density is less than a hundredth of the target's{near}; its "
            f"own samples show {exploration.uncovered_by_samples.value:.1%}. Corrected draws miss it too."
        )
    return reasons


def _inexact(evidence: _Evidence) -> list[str]:
    """Why the mixture needs correction by importance weights."""
    reasons = [
        f"The mixture gives the mode near {point_text(m.mean)} {m.share:.1%} of its weight, importance "
        f"sampling {m.corrected.percent()}."
        for m in evidence.modes
        if _underestimated(m)
    ]
    if evidence.zero_share > TOLERATED_SHARE:
        reasons.append(f"{evidence.zero_share:.1%} of the mixture lies where the target's density is zero.")
    gap = evidence.gap
    if gap.value - 2 * gap.standard_error > TRUSTED_GAP:
        reasons.append(
            f"KL(q || p) is {kl_text(gap)}, more than {TRUSTED_GAP:g}: means and standard deviations may be "
            "off, and corrected draws are better."
        )
    return reasons


def _underestimated(mode: Mode) -> bool:
    more = mode.corrected_share - mode.share
    return more > SHARE_ERRORS * mode.standard_error and mode.corrected_share > SHARE_FACTOR * mode.share
