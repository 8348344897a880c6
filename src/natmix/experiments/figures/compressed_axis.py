"""A vertical axis that is linear up to a height and logarithmic above it."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.plot.style import KNOWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHARE = 0.4
"""Of the linear part's height: how high the logarithmic part is."""
_MOST_ABOVE = 3
"""Ticks in the logarithmic part."""


def compress_above(ax: "Axes", low: float, knee: float, high: float) -> None:
    """Show ``low`` to ``knee`` linearly, and above a dashed line what is higher, up to ``high``.

    Heights there are by the logarithm of the distance from ``low``.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    span = knee - low
    factor = _SHARE / math.log(max((high - low) / span, math.e))

    def forward(y: Any) -> Any:
        u = (np.asarray(y, float) - low) / span
        return np.where(u <= 1, u, 1 + factor * np.log(np.maximum(u, 1)))

    def inverse(v: Any) -> Any:
        v = np.asarray(v, float)
        return low + span * np.where(v <= 1, v, np.exp((np.maximum(v, 1) - 1) / factor))

    ax.set_yscale("function", functions=(forward, inverse))
    ax.set_ylim(low, float(inverse(1 + 1.06 * _SHARE)))
    inside = [t for t in MaxNLocator(5).tick_values(low, knee) if low <= t <= knee]
    ax.yaxis.set_major_locator(FixedLocator([*inside, *_ticks_above(low, knee, high)]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.7g}"))
    ax.axhline(knee, color=KNOWN, linewidth=0.7, linestyle=(0, (4, 4)))
    words: dict[str, Any] = {"fontsize": 6.5, "color": KNOWN, "ha": "right", "va": "bottom"}
    ax.annotate(
        "logarithmic above", (0.99, knee), (0, 1), ("axes fraction", "data"), "offset points", **words
    )


def _ticks_above(low: float, knee: float, high: float) -> list[float]:
    """A few round numbers, evenly spaced on the logarithmic part."""
    distances = np.geomspace(1.5 * (knee - low), max(high - low, 1.5 * (knee - low)), _MOST_ABOVE)
    return sorted({t for d in distances if knee < (t := float(f"{low + d:.1g}")) <= high})
