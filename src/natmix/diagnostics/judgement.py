"""The rules of a verdict: which numbers make a fit safe to use, and which do not."""

from typing import NamedTuple

import numpy as np

from natmix.diagnostics.evidence import SampleEvidence
from natmix.diagnostics.exploration import Exploration
from natmix.diagnostics.mode_search import ModeSearch
from natmix.diagnostics.modes import Mode
from natmix.diagnostics.remedies import Remedies
from natmix.estimate import Estimate, counted

TRUSTED_GAP = 0.05
"""The largest KL(q || p), in nats, of a good approximation.

For a Gaussian target no mean is then off by more than sqrt(2 KL) = 0.32 standard deviations, and by that
much only if the whole divergence lies in that direction. The estimate counts as larger if it is so by two
standard errors: a good fit is not rejected for the noise of its samples.
"""
CERTAIN_GAP = 0.1
"""The estimate of KL(q || p) plus two standard errors must be below this, or the samples are too few."""
MIN_EFFECTIVE_SAMPLES = 50
"""The effective sample size below which importance sampling says nothing: with 50 a mean has an error of 0.14
standard deviations, and the effective sample size itself is not reliable."""
_FAR = 0.25
"""Below this share of effective samples a mixture is far from its target; above it a small effective sample
size is that of a small sample."""
_FEW = 1000
"""With fewer samples the shape of their tail is too noisy to reject a mixture whose samples are nearly all
effective."""
SHARE_ERRORS, SHARE_FACTOR = 3.0, 1.2
"""A mode is underestimated if its corrected share is larger by this factor and by this many standard errors:
a fifth is a difference that matters, and three errors are a false alarm in a thousand."""
TOLERATED_SHARE = 0.01
"""The largest share of samples with density zero, or with NaN or +inf, and the largest error of a mode's
share that does not matter: a hundredth moves no mean by more than `TRUSTED_GAP` does."""
CERTAIN_SHARE = 0.03
"""The share of samples with density zero plus two standard errors must be below this, or the samples are too
few; the share minus two standard errors below `TOLERATED_SHARE`, or the mixture needs correction."""
HIDDEN_SHARE = 0.005
"""The share of the total mass that unseen weights may have (`SmoothedWeights.hidden`): below it a heavy tail
is negligible. It also holds for the proposal of a fit that stopped at a limit, whatever k-hat: with 2000
samples that is too noisy to tell a Cauchy's tails from light ones."""
CORRECTED_HIDDEN_SHARE = 0.01
"""The same for the proposal of a converged fit: the largest share that importance resampling may miss."""
UNSEARCHED_TAIL = 0.01
"""The largest share of the total mass that the deepest tail of the weights may hide, the error of its shape
included, for trust without Markov chains: below 0.008 for Gaussians whose standard deviations are off by up
to a tenth and for Student's t with 30 degrees of freedom, 0.012 to 0.043 for a Gaussian on a Cauchy."""
MAX_ROUNDING = 0.01
"""The largest rounding error of a log density, in nats: a fifth of `TRUSTED_GAP`. In float32 a log density of
84,000 nats has it, in float64 one of 4.5e13."""


class Judgement(NamedTuple):
    """A verdict and its reasons."""

    verdict: str
    reasons: tuple[str, ...]


class Outside(NamedTuple):
    """What searches outside the mixture's own samples found.

    Attributes:
        mode_search: if there was one.
        missed: the position of the largest missed mode, as text.
        exploration: if there were chains.
        uncovered: a position that they found not covered, as text; may be empty.
    """

    mode_search: ModeSearch | None
    missed: str
    exploration: Exploration | None
    uncovered: str


def judge(
    evidence: SampleEvidence,
    modes: tuple[tuple[Mode, str], ...],
    outside: Outside,
    remedies: Remedies,
    *,
    early: bool,
) -> Judgement:
    """The verdict.

    Args:
        evidence: by the mixture's samples.
        modes: of the mixture, with their positions as text.
        outside: what was found elsewhere.
        remedies: what can be advised.
        early: whether the fit ended before it had converged.
    """
    if evidence.samples == 0:
        return Judgement("distrust", ("No sample of the mixture has a usable log density.",))
    if not evidence.rounding <= MAX_ROUNDING:
        return Judgement("undecided", (_too_few_digits(evidence.rounding, remedies),))
    against = [*_unusable_weights(evidence), *_missed_mass(outside)]
    if against:
        return Judgement("distrust", tuple(against))
    few = _too_few(evidence, remedies)
    if few:
        return Judgement("undecided", (few,))
    inexact = _inexact(evidence, modes)
    if inexact and not evidence.hidden <= (HIDDEN_SHARE if early else CORRECTED_HIDDEN_SHARE):
        unsure = (
            f"About {min(evidence.hidden, 1):.1%} of the total mass may lie where the mixture has no sample "
            "yet, too much for importance weights to correct: fit longer"
            f"{remedies.samples(20_000, ', or ')}. Or the target cannot be normalised, which no fit mends."
        )
        return Judgement("distrust", (*inexact, unsure))
    if inexact:
        return Judgement("proposal", tuple(inexact))
    unsure = _uncertain_gap(evidence, remedies)
    if unsure:
        return Judgement("undecided", (unsure,))
    good = f"KL(q || p) is {kl_text(evidence.gap)} and the importance weights are well behaved."
    search = outside.mode_search
    if search is None or not search.found:
        return Judgement("unsearched", (good,))
    if not search.thorough:
        few = f"reached {search.seldom} of {len(search.hits)} known modes seldom or never"
        why = "ended with too few evaluations" if search.ended_early else few
        return Judgement("unsearched", (good, f"The mode search {why}: it may have missed others."))
    if not search.covers_narrow_modes:
        return Judgement("unsearched", (good, _narrow_modes(search)))
    hidden = evidence.deep_tail.hidden_at_most
    if outside.exploration is None and not hidden <= UNSEARCHED_TAIL:
        tails = f"Tails with {min(hidden, 1):.1%} of the total mass would not show in its samples"
        return Judgement("unsearched", (good, f"{tails}, and no Markov chains have searched for them."))
    return Judgement("trust", (good,))


def _narrow_modes(search: ModeSearch) -> str:
    needed = f"down to {search.narrow_goal:.2g} times their widths would take more evaluations"
    if search.covered_width >= 1:
        return f"The mode search has not looked for narrow modes next to the known ones: {needed}."
    return (
        f"The mode search covers modes next to the known ones down to {search.covered_width:.2g} times their "
        f"widths: {needed}."
    )


def _too_few_digits(rounding: float, remedies: Remedies) -> str:
    return (
        f"Too few digits to judge: log densities of this size are rounded by {rounding:.2g} nats. "
        f"{remedies.digits(rounding, MAX_ROUNDING)}"
    )


def _too_few(evidence: SampleEvidence, remedies: Remedies) -> str:
    """Why there are too few samples to judge by; empty if there are enough."""
    n, ess = evidence.samples, evidence.effective_samples
    more = remedies.samples(2000, ": ")
    if n < MIN_EFFECTIVE_SAMPLES:
        were = "was" if n == 1 else "were"
        return f"Too few samples to judge: only {counted(n, 'sample')} {were} evaluated{more}."
    if round(ess) < MIN_EFFECTIVE_SAMPLES:
        return f"Too few samples to judge: only {ess:.0f} of {n} are effective{more}."
    share, error = evidence.zero_share, _share_error(evidence)
    if share - 2 * error <= TOLERATED_SHARE and share + 2 * error > CERTAIN_SHARE:
        return (
            f"Too few samples to judge: the target's density is zero at {share:.1%} of {n}, which may be "
            f"above {CERTAIN_SHARE:.0%} of the mixture{more}."
        )
    if n < _FEW and _heavy_tail(evidence):
        return f"Too few samples to judge: {n} do not show how heavy the tail of their weights is{more}."
    return ""


def _uncertain_gap(evidence: SampleEvidence, remedies: Remedies) -> str:
    """Why the divergence is not known well enough to trust the mixture; empty if it is."""
    gap = evidence.gap
    if gap.value + 2 * gap.standard_error <= CERTAIN_GAP:
        return ""
    needed = evidence.samples * (4 * gap.standard_error / CERTAIN_GAP) ** 2
    finite = needed if np.isfinite(needed) else 20_000
    number = int(np.clip(1000 * np.ceil(finite / 1000), 2000, 20_000))
    return (
        f"Too few samples to judge: KL(q || p) is {kl_text(gap)}, and may be above "
        f"{CERTAIN_GAP:g}{remedies.samples(number, ': ')}."
    )


def _heavy_tail(evidence: SampleEvidence) -> bool:
    """Whether the weights hide mass, by the whole tail and by its largest third."""
    tails = (evidence.tail, evidence.deep_tail)
    return all(not (t.k_hat <= evidence.k_limit or t.hidden <= HIDDEN_SHARE) for t in tails)


def _unusable_weights(evidence: SampleEvidence) -> list[str]:
    """Why the importance weights say nothing good about the mixture, if they do not."""
    n, ess = evidence.samples, evidence.effective_samples
    reasons = []
    if evidence.invalid_share > TOLERATED_SHARE:
        reasons.append(
            f"The log density is NaN or +inf at {evidence.invalid_share:.1%} of the mixture's samples."
        )
    if n < MIN_EFFECTIVE_SAMPLES:
        return reasons
    if _heavy_tail(evidence) and (n >= _FEW or ess < _FAR * n):
        reasons.append(
            f"The importance weights have a heavy tail (k-hat {evidence.tail.k_hat:.2f}, reliable up to "
            f"{evidence.k_limit:.2f}): the mixture is too narrow somewhere, its tails are too light, or the "
            "target cannot be normalised."
        )
    elif ess < min(MIN_EFFECTIVE_SAMPLES, _FAR * n):
        reasons.append(
            f"The effective sample size is only {ess:.0f} of {n}: the mixture is far "
            "from the target, or the target cannot be normalised."
        )
    return reasons


def _missed_mass(outside: Outside) -> list[str]:
    """What the mode search and the chains found outside the mixture."""
    mode_search, exploration = outside.mode_search, outside.exploration
    reasons = []
    if mode_search is not None and mode_search.missed:
        largest = mode_search.missed[0]
        number = len(mode_search.missed)
        reasons.append(
            f"A search found {counted(number, 'mode')} that the mixture does not cover, the largest with "
            f"about {largest.share:.0%} of the total mass near {outside.missed}: fit again "
            "with more initial components, a wider initial region, or an initial mixture that covers it."
        )
    if exploration is not None and exploration.significant:
        near = f", for example near {outside.uncovered}" if outside.uncovered else ""
        reasons.append(
            f"Markov chains from the mixture's corrected samples found {exploration.uncovered.percent()} of "
            f"the total mass where the mixture's density is less than a hundredth of the target's{near}; its "
            f"own samples show {exploration.uncovered_by_samples.value:.1%}. Corrected draws miss it too."
        )
    return reasons


def _inexact(evidence: SampleEvidence, modes: tuple[tuple[Mode, str], ...]) -> list[str]:
    """Why the mixture needs correction by importance weights."""
    reasons = [
        f"The mixture gives the mode near {position} {m.share:.1%} of its weight, importance "
        f"sampling {m.corrected.percent()}."
        for m, position in modes
        if _underestimated(m)
    ]
    if not evidence.zero_share - 2 * _share_error(evidence) <= TOLERATED_SHARE:
        reasons.append(f"{evidence.zero_share:.1%} of the mixture lies where the target's density is zero.")
    gap = evidence.gap
    if not (np.isfinite(gap.value) and gap.value - 2 * gap.standard_error <= TRUSTED_GAP):
        reasons.append(
            f"KL(q || p) is {kl_text(gap)}, more than {TRUSTED_GAP:g}: means and standard deviations may be "
            "off, and corrected draws are better."
        )
    return reasons


def _share_error(evidence: SampleEvidence) -> float:
    """The standard error of the share of samples with density zero."""
    share = evidence.zero_share
    return float(np.sqrt(share * (1 - share) / evidence.samples))


def _underestimated(mode: Mode) -> bool:
    more = mode.corrected_share - mode.share
    least = max(SHARE_ERRORS * mode.standard_error, TOLERATED_SHARE)
    return more > least and mode.corrected_share > SHARE_FACTOR * mode.share


def kl_text(gap: Estimate) -> str:
    """KL(q || p) in nats with its error; the divergence cannot be negative, only its estimate can."""
    if gap.value + 2 * gap.standard_error < 1e-3:
        return "below 0.001 nats"
    return f"{gap} nats"
