"""Ranks of true parameters, which should be uniform."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.plot.axes import AxesArray
from natmix.plot.style import COMPONENT, DENSITY, DPI, KNOWN, ink, points, pyplot, tidy
from natmix.text.suggestions import hint

if TYPE_CHECKING:
    from natmix.calibration import SimulationCheck

_MOST = 20
_COLUMNS = 5
_BAND = 0.99
_PER_BAR = 5
"""Fits per bar, on average."""


def plot_ranks(
    check: "SimulationCheck", *, parameters: Sequence[str] | None = None, bars: int | None = None
) -> "np.ndarray":
    """A histogram of ranks for every parameter, over the band that holds 99% of the bars by chance.

    Bars that are high at both ends show an approximation that is too narrow; high in the middle, too wide;
    rising, too low; falling, too high. Orange parameters have a rejected test.

    Args:
        check: the result of `natmix.calibration.simulation_check`.
        parameters: names of at most 20 parameters. Default: all, or the 20 with the smallest p-values.
        bars: the number of bars. Default: 4 to 20, with five fits in a bar on average.

    Returns:
        The axes, one per parameter.
    """
    from scipy import stats

    known = {p.name: p for p in check.parameters}
    chosen = _chosen(check, parameters)
    bars = int(np.clip(check.fits // _PER_BAR, 4, 20)) if bars is None else bars
    if not 2 <= bars <= check.draws + 1:
        raise ValueError(f"bars must be a number from 2 to {check.draws + 1}, got {bars}.")
    columns = min(_COLUMNS, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    size = (max(2.1 * columns + 0.4, 4.6), 1.6 * rows + 0.7)
    figure, grid = pyplot().subplots(
        rows, columns, figsize=size, dpi=DPI, squeeze=False, sharex=True, sharey=True, layout="constrained"
    )
    low, high = stats.binom.interval(_BAND, check.fits, 1 / bars)
    for ax in grid.flat[len(chosen) :]:
        ax.axis("off")
    for k, (ax, name) in enumerate(zip(grid.flat, chosen, strict=False)):
        wrong = known[name].flagged
        pit_values = check.pit_values[:, check.names.index(name)]
        ax.axhspan(low, high, color=KNOWN, alpha=0.18, linewidth=0)
        ax.axhline(check.fits / bars, color=KNOWN, linewidth=0.8)
        colour = COMPONENT if wrong else DENSITY
        ax.hist(pit_values, bins=bars, range=(0, 1), color=colour, alpha=0.75, rwidth=0.9)
        tidy(ax)
        ax.set_title(name, color=COMPONENT if wrong else ink(), fontsize=points(8), loc="left", pad=3)
        ax.set(xlim=(0, 1), xticks=[0, 0.5, 1], xticklabels=["0", "", str(check.draws)])
        ax.tick_params(labelbottom=k + columns >= len(chosen))
        for tick, side in zip(ax.xaxis.get_major_ticks(), ("left", "center", "right"), strict=True):
            tick.label1.set_horizontalalignment(side)
    top = max(p.get_height() for ax in grid.flat[: len(chosen)] for p in ax.patches if p.get_width() < 1)
    grid[0, 0].set_ylim(0, 1.12 * max(top, high))
    _explain(figure, check)
    return AxesArray.of(np.array(list(grid.flat[: len(chosen)]), object))


def _chosen(check: "SimulationCheck", parameters: Sequence[str] | None) -> list[str]:
    if parameters is None:
        least = sorted(check.parameters, key=lambda p: p.p_value)[:_MOST]
        kept = {p.name for p in least}
        return [name for name in check.names if name in kept]
    unknown = [name for name in parameters if name not in check.names]
    if unknown:
        raise ValueError(f"There are no ranks of {unknown[0]!r}. {hint(unknown[0], check.names)}")
    if not 1 <= len(parameters) <= _MOST:
        raise ValueError(f"parameters must name 1 to {_MOST} of them, got {len(parameters)}.")
    return list(parameters)


def _explain(figure: Any, check: "SimulationCheck") -> None:
    label = f"rank of the true value among {check.draws} draws"
    figure.supxlabel(label, color=ink(), fontsize=points(8))
    figure.supylabel(f"of {check.fits} fits", color=ink(), fontsize=points(8))
