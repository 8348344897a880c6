"""A simulation-based check in words."""

from typing import TYPE_CHECKING

import numpy as np

from natmix.diagnostics.psis import k_hat_limit

if TYPE_CHECKING:
    from natmix.calibration.simulation_check import ParameterCheck, SimulationCheck

_SHOWN = 8
_K_HAT_SAMPLES = 2000


def words(check: "SimulationCheck") -> list[str]:
    """Some lines: the verdict, what is wrong, and what could not have been seen."""
    from natmix.calibration.simulation_check import FEWEST_FITS

    if check.fits < FEWEST_FITS:
        lines = [f"NOTHING TO SAY: ranks of {_count(check.fits, 'fit')} only, {FEWEST_FITS} are needed."]
        return lines + _troubles(check)
    off = check.flagged
    of = f"{_count(len(check.names), 'parameter')} in {check.fits} simulations"
    lines = [f"{len(off)} WRONG of {of}." if off else f"NOTHING WRONG SEEN with {of}."]
    lines += [f"  {p.name}: {_what(p)}." for p in off[:_SHOWN]]
    if len(off) > _SHOWN:
        lines.append(f"  … and {len(off) - _SHOWN} more")
    lines.append(
        f"  A bias below {check.visible_bias:.2f} standard deviations, or a width too small by a factor below"
        f" {check.visible_spread:.2f}, may go unseen: more fits see more. False alarms have probability "
        f"{check.level:g} at most."
    )
    return lines + _troubles(check)


def _what(p: "ParameterCheck") -> str:
    parts = []
    if p.biased:
        side = "low" if p.bias.value > 0 else "high"
        parts.append(
            f"too {side} by {abs(p.bias.value):.2f} ± {p.bias.standard_error:.2f} standard deviations "
            f"(symmetry p = {p.symmetry:.2g})"
        )
    if p.mistaken_width:
        shape = "too narrow" if p.spread.value > 1 else "too wide"
        parts.append(
            f"{shape}, truths lie {p.spread.value:.2f} ± {p.spread.standard_error:.2f} times as far out as "
            f"they should (width p = {p.width:.2g})"
        )
    if not parts:
        parts.append(f"of another shape (uniformity p = {p.uniformity:.2g})")
    return "; ".join(parts)


def _troubles(check: "SimulationCheck") -> list[str]:
    lines = []
    if check.fits + len(check.failures) < check.asked:
        lines.append(f"  Ended after {check.fits + len(check.failures)} of {check.asked} simulations.")
    if check.failures:
        lines.append(
            f"  {_count(len(check.failures), 'fit')} failed and are left out, which may hide the worst: "
            f"{check.failures[0]}"
        )
    tails = int(np.sum(check.k_hats > k_hat_limit(_K_HAT_SAMPLES)))
    if tails:
        lines.append(f"  {_count(tails, 'fit')} of {check.fits} had a k-hat beyond what is reliable.")
    return lines


def _count(n: int, thing: str) -> str:
    return f"1 {thing}" if n == 1 else f"{n} {thing}s"
