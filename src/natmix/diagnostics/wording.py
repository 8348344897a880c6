"""A diagnosis in words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from natmix.diagnostics.modes import Mode
from natmix.diagnostics.search_starts import REACH
from natmix.estimate import Estimate, counted

if TYPE_CHECKING:
    from natmix.diagnostics.diagnosis import Diagnosis

MINOR_SHARE = 0.01
"""The share below which a mode counts as minor: such modes come and go with the seed."""
_MAX_MODES = 8

_HEADLINES = {
    "trust": "TRUST IT: the mixture is a good approximation of the target, safe to use",
    "proposal": "USE IT AS A PROPOSAL: draw with result.resample(), which corrects by importance weights",
    "distrust": "DO NOT TRUST IT: the mixture is not a good approximation of the target, or cannot be judged",
}


def verdict_lines(d: "Diagnosis") -> list[str]:
    """The verdict, its reasons, and the numbers behind it."""
    unsearched = d.mode_search is None and d.verdict != "distrust"
    headline = _HEADLINES[d.verdict] + ("; other modes were not searched for." if unsearched else ".")
    lines = [headline, *(f"  {reason}" for reason in d.reasons)]
    lines += [
        f"  k-hat        {d.k_hat:.2f} (reliable up to {d.k_limit:.2f}); effective sample size "
        f"{d.effective_samples:,.0f} of {d.samples:,}",
        f"  log Z        {d.log_evidence} by importance sampling; ELBO {d.elbo}, KL {kl_text(d.gap)}",
    ]
    if len(d.modes) > 1:
        lines += _mode_lines(d.modes)
    return [*lines, *_search_lines(d), *_chain_lines(d), *_unseen_lines(d)]


def _search_lines(d: "Diagnosis") -> list[str]:
    search = d.mode_search
    if search is None:
        return [f"  mode search  none: {d.not_searched}"] if d.not_searched else []
    missed = len(search.missed)
    return [
        f"  mode search  {counted(search.runs, 'L-BFGS run')}, from up to {max(REACH):.0f} widths of the "
        f"initial region away, found {counted(search.found, 'mode')}, {missed} of them missed "
        f"({counted(search.evaluations, 'evaluation')})"
    ]


def _chain_lines(d: "Diagnosis") -> list[str]:
    e = d.exploration
    if e is None:
        return [f"  chains       none: {d.not_explored}"] if d.not_explored else []
    return [
        f"  chains       {counted(e.chains, 'Markov chain')} found {e.uncovered.value:.1%} of the total mass "
        f"not covered by the mixture, its samples {e.uncovered_by_samples.value:.1%} "
        f"({counted(e.evaluations, 'evaluation')})"
    ]


def _mode_lines(modes: Sequence[Mode]) -> list[str]:
    """The modes with their shares, and how many are minor."""
    major = [m for m in modes if max(m.share, m.corrected_share) >= MINOR_SHARE]
    minor = len(modes) - len(major)
    small = f", and {minor} minor below {MINOR_SHARE:.0%}" if minor else ""
    lines = [f"  modes        {len(major)}{small}; shares of the mixture, and corrected:"]
    shares = [f"    {m.share:7.2%}  {m.corrected.percent()}" for m in modes[:_MAX_MODES]]
    more = len(modes) - _MAX_MODES
    return [*lines, *shares, *([f"    … and {more} more"] if more > 0 else [])]


def _unseen_lines(d: "Diagnosis") -> list[str]:
    """What the numbers cannot show, and which search would."""
    search, explore = d.mode_search is None, d.exploration is None
    if not (search or explore):
        return []
    places = " or ".join(["a mode"] * search + ["a narrow neck or a tail"] * explore)
    asked = ", ".join(["search=32"] * search + ["explore=1000"] * explore)
    return [
        f"  {places.capitalize()} where the mixture has no sample does not show in these numbers:",
        f"  result.diagnose({asked}) searches for {'them' if search and explore else 'it'}.",
    ]


def kl_text(gap: Estimate) -> str:
    """KL(q || p) in nats with its error; the divergence cannot be negative, only its estimate can."""
    if gap.value + 2 * gap.standard_error < 1e-3:
        return "below 0.001 nats"
    return f"{gap} nats"


def point_text(x: np.ndarray) -> str:
    """The first coordinates of a point."""
    shown = ", ".join(f"{v:.3g}" for v in x[:4])
    return f"({shown}{', …' if len(x) > 4 else ''})"
