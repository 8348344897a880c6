"""Simulation-based calibration in words."""

from typing import TYPE_CHECKING

import numpy as np

from natmix.diagnostics.psis import k_hat_limit
from natmix.estimate import Estimate, counted

if TYPE_CHECKING:
    from natmix.calibration.simulation_check import ParameterCheck, SimulationCheck

_SHOWN = 8
_K_HAT_SAMPLES = 2000


def words(check: "SimulationCheck") -> list[str]:
    """The verdict, what is wrong, and what too few fits cannot detect."""
    from natmix.calibration.simulation_check import MIN_FITS

    if check.fits < MIN_FITS:
        lines = [f"NO VERDICT: {counted(check.fits, 'fit')} succeeded, at least {MIN_FITS} are needed."]
        return lines + _failures(check)
    off = check.flagged
    of = f"{counted(len(check.names), 'parameter')} in {check.fits} simulations"
    lines = [f"{len(off)} WRONG of {of}." if off else f"NOTHING WRONG FOUND with {of}."]
    lines += [f"  {p.name}: {_description(p)}." for p in off[:_SHOWN]]
    if len(off) > _SHOWN:
        lines.append(f"  … and {len(off) - _SHOWN} more")
    lines.append(
        f"  A bias below {check.visible_bias:.2f} standard deviations, or a width too small by a factor below"
        f" {check.visible_spread:.2f}, may go undetected; more fits detect smaller errors. The probability "
        f"of a false alarm is at most {check.level:g}."
    )
    return lines + _failures(check)


def _description(p: "ParameterCheck") -> str:
    parts = []
    if p.biased:
        side = "low" if p.bias.value > 0 else "high"
        parts.append(
            f"too {side} by {Estimate(abs(p.bias.value), p.bias.standard_error)} standard deviations "
            f"(symmetry p = {p.symmetry:.2g})"
        )
    if p.wrong_width:
        shape = "too narrow" if p.spread.value > 1 else "too wide"
        parts.append(
            f"{shape}: true values lie {p.spread} times as far out as they should (width p = {p.width:.2g})"
        )
    if not parts:
        parts.append(f"wrong in shape, though not in location or width (uniformity p = {p.uniformity:.2g})")
    return "; ".join(parts)


def _failures(check: "SimulationCheck") -> list[str]:
    lines = []
    if check.fits + len(check.failures) < check.asked:
        lines.append(f"  Ended after {check.fits + len(check.failures)} of {check.asked} simulations.")
    if check.failures:
        fits = counted(len(check.failures), "failed fit")
        lines.append(f"  {fits} left out; they may be the worst ones. The first error: {check.failures[0]}")
    tails = int(np.sum(check.k_hats > k_hat_limit(_K_HAT_SAMPLES)))
    if tails:
        lines.append(f"  {counted(tails, 'fit')} of {check.fits} had a k-hat above the reliable limit.")
    return lines
