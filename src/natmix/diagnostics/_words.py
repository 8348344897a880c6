"""A diagnosis in words."""

from typing import TYPE_CHECKING

from natmix.diagnostics._nats import nats

if TYPE_CHECKING:
    from natmix.diagnostics._diagnosis import Diagnosis

_VERDICTS = {
    "trust": "TRUST IT: the mixture may stand for the target.",
    "proposal": "USE IT AS A PROPOSAL: draw with result.resample(), which corrects by importance weights.",
    "distrust": "DO NOT TRUST IT.",
}


def words(d: "Diagnosis") -> list[str]:
    """Some lines: the verdict, why, and the numbers behind it."""
    lines = [_VERDICTS[d.verdict], *(f"  {reason}" for reason in d.reasons)]
    lines += [
        f"  k-hat        {d.k_hat:.2f} (reliable up to {d.k_limit:.2f}); {d.effective_samples:,.0f} of "
        f"{d.samples:,} samples effective",
        f"  log Z        {d.log_evidence} by importance sampling; ELBO {d.elbo}, KL {nats(d.gap)}",
    ]
    if len(d.modes) > 1:
        lines.append(f"  modes        {len(d.modes)}, with the mixture's and the corrected shares:")
        lines += [
            f"    {m.share:7.2%}  {m.corrected_share:7.2%} ± {m.standard_error:.2%}" for m in d.modes[:8]
        ]
        if len(d.modes) > 8:
            lines.append(f"    … and {len(d.modes) - 8} more")
    if d.hunt is not None:
        lines.append(
            f"  search       {d.hunt.starts} climbs found {_modes(d.hunt.found)}, {len(d.hunt.missed)} of "
            f"them missed ({d.hunt.evaluations:,} evaluations)"
        )
    else:
        lines.append(
            "  A mode in which the mixture has no sample at all does not show in these numbers: "
            "result.diagnose(search=32) looks for some."
        )
    return lines


def _modes(n: int) -> str:
    return "1 mode" if n == 1 else f"{n} modes"
