"""Components that come and go: the number alive, births and deaths."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.plot.style import COMPONENT, DPI, GRID, INK, KNOWN, name_axes, pyplot, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BARS = 60
_LINEAR = 25  # higher bars take a logarithmic scale, or the low ones would vanish


def plot_component_events(
    trace: Mapping[str, np.ndarray], *, bars: int = _BARS, axes: "tuple[Axes, Axes] | None" = None
) -> "tuple[Axes, Axes]":
    """The number of components above; below, births as bars upwards and deaths downwards.

    Args:
        trace: ``components``, ``added`` and ``deleted`` in every iteration: the trace of a run, or
            ``Result.trajectory``.
        bars: the largest number of bars. Each bar counts the events of the same round number of iterations.
        axes: where to draw, two axes; a new figure if left out.

    Returns:
        The axes of the number and those of the events.
    """
    if not len(trace.get("components", ())):
        raise ValueError("There is no record of the components yet; there is nothing to plot.")
    alive, added, deleted = (
        np.asarray(trace[name]).astype(int) for name in ("components", "added", "deleted")
    )
    if bars < 1:
        raise ValueError(f"There must be at least one bar, got bars={bars}.")
    above, below = axes if axes is not None else _new_axes()
    above.step(np.arange(1, len(alive) + 1), alive, where="post", color=COMPONENT, linewidth=1.4)
    above.locator_params(axis="y", integer=True, nbins=5)
    above.set(ylabel="alive", ylim=(0, 1.08 * alive.max()))
    width = round_up(len(alive) / bars)
    _draw_events(below, added, deleted, width)
    for ax in (above, below):
        ax.set_xlim(0, len(alive) + 1)
        ax.grid(axis="y", color=GRID, linewidth=0.7)
        ax.set_axisbelow(True)
        tidy(ax)
    name_axes(
        above, f"Components: {added.sum():,} added, {deleted.sum():,} deleted, {alive[-1]:,} at the end"
    )
    return above, below


def _new_axes() -> "tuple[Axes, Axes]":
    figure, (above, below) = pyplot().subplots(
        2, 1, sharex=True, figsize=(7, 4.4), height_ratios=(1.2, 1), dpi=DPI, layout="constrained"
    )
    figure.align_ylabels()
    return above, below


def round_up(value: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50, ..."""
    power = 10 ** math.floor(math.log10(max(value, 1.0)))
    return int(power * min(step for step in (1, 2, 5, 10) if power * step >= value))


def _draw_events(ax: "Axes", added: np.ndarray, deleted: np.ndarray, width: int) -> None:
    starts = np.arange(0, len(added), width)
    births, deaths = (np.add.reduceat(n, starts) for n in (added, deleted))
    style: dict[str, Any] = {"width": 0.86 * width, "align": "center", "linewidth": 0}
    middle = starts + 0.5 + width / 2
    ax.bar(middle, births, color=COMPONENT, label="added", **style)
    ax.bar(middle, -deaths, color=KNOWN, label="deleted", **style)
    ax.axhline(0, color=INK, linewidth=0.7)
    up, down = max(births.max(), 1), max(deaths.max(), 1)
    if max(up, down) > _LINEAR:
        ax.set_yscale("symlog", linthresh=1, linscale=0.6)
        ax.set_ylim(-1.3 * down, 8 * up)  # with room for the legend
    else:
        ax.locator_params(axis="y", integer=True, nbins=5)
        ax.set_ylim(-1.1 * down, up + 0.4 * max(up, down))
    ax.set(xlabel="iteration", ylabel="events" if width == 1 else f"per {width:,} iterations")
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    ax.legend(loc="upper right", ncols=2, frameon=False, fontsize=8, labelcolor=INK)
