"""A diagnosis in words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natmix.diagnostics.mode_search import REACH
from natmix.diagnostics.modes import Mode
from natmix.diagnostics.nats import nats

if TYPE_CHECKING:
    from natmix.diagnostics.diagnosis import Diagnosis

BUMP = 0.01
"""Share below which a mode is called a bump: such come and go with the seed."""

_VERDICTS = {
    "trust": "TRUST IT: the mixture may stand for the target",
    "proposal": "USE IT AS A PROPOSAL: draw with result.resample(), which corrects by importance weights",
    "distrust": "DO NOT TRUST IT",
}


def words(d: "Diagnosis") -> list[str]:
    """Some lines: the verdict, why, and the numbers behind it."""
    unsearched = d.hunt is None and d.verdict != "distrust"
    headline = _VERDICTS[d.verdict] + ("; not searched for other modes." if unsearched else ".")
    lines = [headline, *(f"  {reason}" for reason in d.reasons)]
    lines += [
        f"  k-hat        {d.k_hat:.2f} (reliable up to {d.k_limit:.2f}); {d.effective_samples:,.0f} of "
        f"{d.samples:,} samples effective",
        f"  log Z        {d.log_evidence} by importance sampling; ELBO {d.elbo}, KL {nats(d.gap)}",
    ]
    if len(d.modes) > 1:
        lines += _shares(d.modes)
    if d.hunt is not None:
        lines.append(
            f"  search       {_climbs(d.hunt.starts)}, from up to {max(REACH):.0f} widths of the start "
            f"region away, found {_modes(d.hunt.found)}, {len(d.hunt.missed)} of them missed "
            f"({d.hunt.evaluations:,} evaluations)"
        )
    elif d.unsearched:
        lines.append(f"  search       none: {d.unsearched}")
    if d.exploration is not None:
        e = d.exploration
        lines.append(
            f"  chains       {e.chains} chains found {e.lacking.value:.1%} of all mass lacking in the "
            f"mixture, its samples {e.known.value:.1%} ({e.evaluations:,} evaluations)"
        )
    elif d.unexplored:
        lines.append(f"  chains       none: {d.unexplored}")
    if d.hunt is None or d.exploration is None:
        lines += _unseen(search=d.hunt is None, explore=d.exploration is None)
    return lines


def _shares(modes: Sequence[Mode]) -> list[str]:
    """Modes with their shares, and how many are too light to be called one."""
    large = [m for m in modes if max(m.share, m.corrected_share) >= BUMP]
    bumps = len(modes) - len(large)
    small = f", and {'a bump' if bumps == 1 else f'{bumps} bumps'} below {BUMP:.0%}" if bumps else ""
    lines = [f"  modes        {len(large)}{small}, with the mixture's and the corrected shares:"]
    shares = [f"    {m.share:7.2%}  {m.corrected_share:7.2%} ± {m.standard_error:.2%}" for m in modes[:8]]
    return [*lines, *shares, *([f"    … and {len(modes) - 8} more"] if len(modes) > 8 else [])]


def _unseen(*, search: bool, explore: bool) -> list[str]:
    """What the numbers cannot show, and who looks for it."""
    places = " or ".join(["a mode"] * search + ["a neck or a tail"] * explore)
    asked = ", ".join(["search=32"] * search + ["explore=1000"] * explore)
    return [
        f"  {places.capitalize()} in which the mixture has no sample at all does not show in these numbers:",
        f"  result.diagnose({asked}) looks for some.",
    ]


def _climbs(n: int) -> str:
    return "1 climb" if n == 1 else f"{n} climbs"


def _modes(n: int) -> str:
    return "1 mode" if n == 1 else f"{n} modes"
