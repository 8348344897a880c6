"""One meaning per colour: densities are blue, components are orange, known values grey."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

DENSITY = "#1f5f99"
COMPONENT = "#e4622b"
KNOWN = "#5f6b7a"
INK = "#26313f"
DPI = 150
NO_MATPLOTLIB = "Pictures need matplotlib, which is not installed: pip install 'natmix[plot]'"

_BLUES = ("#e3edf7", "#b7d2ea", "#7fb0d8", "#468bc0", "#1f5f99", "#0b3560")


def pyplot() -> Any:
    """``matplotlib.pyplot``, or a sentence that says how to get it."""
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError(NO_MATPLOTLIB) from error


def density_colours() -> "Colormap":
    """From light to dark blue; what lies below the lowest level stays white."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("natmix", _BLUES)


def axes_or_new(ax: "Axes | None") -> "Axes":
    """The axes given, or those of a new figure."""
    return ax if ax is not None else pyplot().subplots(figsize=(5, 4.6), dpi=DPI, layout="constrained")[1]


def tidy(ax: "Axes") -> None:
    """Quiet frame and ticks, so that the data stand out."""
    ax.tick_params(colors=INK, labelsize=8, length=3, width=0.6)
    for side in ax.spines.values():
        side.set(color="#c3cad3", linewidth=0.8)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set(color=INK, fontsize=9)
