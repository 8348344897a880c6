"""How far a fitted mixture can be trusted, from samples of it at which the target is known."""

import dataclasses

import numpy as np

from natmix.diagnostics.draws import Draws
from natmix.diagnostics.exploration import Exploration
from natmix.diagnostics.mode_search import Hunt
from natmix.diagnostics.modes import Mode, modes
from natmix.diagnostics.nats import nats
from natmix.diagnostics.psis import Smoothed, pareto_smooth, reliable_below
from natmix.estimate import Estimate
from natmix.experiments.metrics.effective_sample_size import share
from natmix.experiments.metrics.ratios import log_mean_exp
from natmix.mixture import Mixture

TRUSTED_GAP = 0.05
"""Nats of KL(q || p) up to which the mixture may stand for the target.

For a Gaussian target no mean differs by more than sqrt(2 KL) = 0.32 standard deviations then, and by that
much only if all of the divergence is in that one direction. The estimate counts as above when it is by two
standard errors, so that a good fit is not refused for the noise of its samples.
"""
FEWEST_EFFECTIVE = 50
"""Effective samples below which importance sampling says nothing: a mean has an error of 0.14 standard
deviations with 50, and the effective number itself, of so few, is not to be believed."""
SHARE_ERRORS, SHARE_FACTOR = 3.0, 1.2
"""A mode is underestimated if its corrected share is larger by this factor and this many standard errors: a
fifth is what one would want to know of, three errors are a false alarm in a thousand."""
HIDDEN_SHARE = 0.005
"""Of all mass that unseen weights may have (`Smoothed.hidden`): below it a heavy tail does not matter. A
proposal that stopped at a limit may hide no more either, whatever k-hat: of 2000 samples that is too noisy to
tell Cauchy's tails from light ones."""
CORRECTED_HIDDEN_SHARE = 0.01
"""The same for a proposal that has converged: what corrected draws may lack at most."""
TOLERATED_SHARE = 0.01
"""Of samples with density zero, or with NaN or +inf, beyond which nothing is trusted: KL(q || p) is infinite
with any, but a hundredth moves no mean by more than the gap above allows."""

ENDED_EARLY = {
    "max_iterations": "stopped at the limit of iterations, before it had converged",
    "max_evaluations": "stopped at the limit of evaluations, before it had converged",
    "max_seconds": "stopped at the time limit, before it had converged",
    "callback": "was stopped by the callback, before it had converged",
    "interrupted": "was interrupted",
    "failed": "was ended by an error of the target",
}
"""By `Result.stopped`."""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Numbers and a verdict.

    Attributes:
        verdict: "trust", "proposal" (use it with `Result.resample`) or "distrust".
        reasons: why, one sentence each.
        k_hat: Pareto's shape of the tail of the importance weights.
        k_limit: the k-hat up to which that many samples are reliable.
        hidden: share of all mass that weights larger than those seen may have, see `Smoothed.hidden`.
        effective_samples: (sum w)^2 / sum w^2 of the smoothed weights.
        samples: how many were used.
        log_evidence: log Z by importance sampling with smoothed weights; its error is only to be believed
            up to ``k_limit``.
        elbo: on the same samples.
        gap: log Z - ELBO = KL(q || p), with its standard error.
        modes: with their shares in the mixture and by importance sampling.
        hunt: what a search for missed modes found, if there was one.
        exploration: what chains from the mixture's samples found, if there were some.
        unexplored: why there were none, if nobody forbade them.
        unsearched: why no other modes were looked for, if nobody forbade it.
        stopped: why the fit ended, as in `Result.stopped`; empty if unknown.
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
    hunt: Hunt | None = None
    exploration: Exploration | None = None
    stopped: str = ""
    unexplored: str = ""
    unsearched: str = ""

    @property
    def trusted(self) -> bool:
        """Whether the mixture may be used as it is."""
        return self.verdict == "trust"

    def __str__(self) -> str:
        from natmix.diagnostics.wording import words

        return "\n".join(words(self))


def diagnose(
    mixture: Mixture,
    draws: Draws,
    hunted: Hunt | None = None,
    explored: Exploration | None = None,
    stopped: str = "",
    unexplored: str = "",
    unsearched: str = "",
) -> Diagnosis:
    """Judge a mixture by its own samples, and by searches for what these cannot show."""
    usable = draws.log_target < np.inf
    zero_share = float(np.mean(draws.log_target == -np.inf))
    invalid_share = float(np.mean(~usable))
    x, log_w = draws.x[usable], draws.log_ratio[usable]
    n = log_w.size
    smoothed = pareto_smooth(log_w)
    limit = reliable_below(n)
    log_z = log_mean_exp(smoothed.log_weights) if n else -np.inf
    weights = np.exp(smoothed.log_weights - log_z) if np.isfinite(log_z) else np.zeros(n)
    ess = n * share(smoothed.log_weights) if n else 0.0
    positive = log_w[np.isfinite(log_w)]
    elbo = Estimate(
        float(positive.mean()) if positive.size == n > 0 else -np.inf,
        float(positive.std(ddof=1) / np.sqrt(positive.size)) if positive.size > 1 else np.inf,
    )
    evidence = Estimate(float(log_z), float(np.std(weights) / np.sqrt(n)) if ess > 1 else np.inf)
    gap = Estimate(evidence.value - elbo.value, _gap_error(weights, log_w) if positive.size == n else np.inf)
    known = modes(mixture, x, weights) if ess > 1 else ()
    verdict, reasons = _judged(
        n,
        smoothed,
        limit,
        ess,
        gap,
        known,
        hunted,
        explored,
        early=stopped in ENDED_EARLY,
        zero_share=zero_share,
        invalid_share=invalid_share,
    )
    if stopped in ENDED_EARLY:
        reasons = (*reasons, f"The fit {ENDED_EARLY[stopped]}: a longer one may be better.")
    tail = (smoothed.k_hat, limit, smoothed.hidden, ess, n)
    return Diagnosis(
        verdict,
        reasons,
        *tail,
        evidence,
        elbo,
        gap,
        known,
        hunted,
        explored,
        stopped,
        unexplored,
        unsearched,
    )


def _gap_error(weights: np.ndarray, log_w: np.ndarray) -> float:
    """Of log mean w - mean log w, to first order; the two share their samples."""
    return float(np.std(weights - log_w) / np.sqrt(log_w.size)) if log_w.size > 1 else np.inf


def _judged(
    n: int,
    tail: Smoothed,
    limit: float,
    ess: float,
    gap: Estimate,
    known: tuple[Mode, ...],
    hunted: Hunt | None,
    explored: Exploration | None,
    *,
    early: bool,
    zero_share: float,
    invalid_share: float,
) -> tuple[str, tuple[str, ...]]:
    against: list[str] = []
    if n == 0:
        return "distrust", ("No sample of the mixture has a usable log density.",)
    if invalid_share > TOLERATED_SHARE:
        against.append(f"The log density is NaN or +inf at {invalid_share:.1%} of the mixture's samples.")
    if n < FEWEST_EFFECTIVE:
        against.append(
            f"Only {n} samples were evaluated, too few to judge by: result.diagnose(samples=2000) takes more."
        )
    elif tail.k_hat > limit and tail.hidden > HIDDEN_SHARE:
        against.append(
            f"The importance weights have a heavy tail (k-hat {tail.k_hat:.2f}, reliable up to {limit:.2f}): "
            "the mixture is too narrow somewhere, its tails are too light, or the target cannot be "
            "normalised."
        )
    elif ess < FEWEST_EFFECTIVE:
        against.append(
            f"Only {ess:.0f} of {n} samples are effective: the mixture is far from the target, or the target "
            "cannot be normalised."
        )
    if hunted is not None and hunted.missed:
        most = hunted.missed[0]
        against.append(
            f"A search found {_count(len(hunted.missed), 'mode')} that the mixture lacks, the largest with "
            f"about {most.share:.0%} of all mass near {_point(most.position)}: fit again with more initial "
            "components, a wider start, or an initial mixture that has one there."
        )
    if explored is not None and explored.uncovered:
        near = "" if explored.position is None else f", for example near {_point(explored.position)}"
        against.append(
            f"Chains from the mixture's corrected samples found {explored.lacking.value:.1%} ± "
            f"{explored.lacking.standard_error:.1%} of all mass where the mixture has less than a hundredth "
            f"of the density it should have{near}; its own samples show {explored.known.value:.1%}. "
            "Corrected draws lack it too."
        )
    if against:
        return "distrust", tuple(against)
    reasons = [
        f"The mixture gives the mode near {_point(m.mean)} {m.share:.1%} of its weight, importance sampling "
        f"{m.corrected_share:.1%} ± {m.standard_error:.1%}."
        for m in known
        if _underestimated(m)
    ]
    if zero_share > TOLERATED_SHARE:
        reasons.append(f"{zero_share:.1%} of the mixture lies where the density is zero.")
    if gap.value - 2 * gap.standard_error > TRUSTED_GAP:
        reasons.append(
            f"KL(q || p) is {nats(gap)}, more than {TRUSTED_GAP:g}: means and spreads may be off, and "
            "corrected draws are better."
        )
    if reasons and tail.hidden > (HIDDEN_SHARE if early else CORRECTED_HIDDEN_SHARE):
        unsure = (
            f"About {tail.hidden:.1%} of all mass may lie where the mixture has no sample yet, too much to "
            "correct by importance weights: fit longer, or judge by more samples, as in "
            "result.diagnose(samples=20_000). Or the target cannot be normalised, which no fit mends."
        )
        return "distrust", (*reasons, unsure)
    if reasons:
        return "proposal", tuple(reasons)
    return "trust", (f"KL(q || p) is {nats(gap)} and the importance weights are well behaved.",)


def _underestimated(mode: Mode) -> bool:
    more = mode.corrected_share - mode.share
    return more > SHARE_ERRORS * mode.standard_error and mode.corrected_share > SHARE_FACTOR * mode.share


def _count(n: int, thing: str) -> str:
    return f"a {thing}" if n == 1 else f"{n} {thing}s"


def _point(x: np.ndarray) -> str:
    shown = ", ".join(f"{v:.3g}" for v in x[:4])
    return f"({shown}{', …' if len(x) > 4 else ''})"
