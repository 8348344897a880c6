"""One meaning per colour: densities are blue, components are orange, known values grey.

Where single components are distinguished they take the colours of `PALETTE`, heaviest first.
"""

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.text.extras import install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

DENSITY = "#1f5f99"
COMPONENT = "#e4622b"
KNOWN = "#5f6b7a"
INK = "#26313f"
FRAME = "#c3cad3"
GRID = "#e8ecf1"
PALETTE = (
    "#332288",
    "#44aa99",
    "#999933",
    "#aa4499",
    "#117733",
    "#88ccee",
    "#882255",
    "#ddcc77",
    "#cc6677",
)
"""Paul Tol's muted colours, distinct to colour-blind eyes too, in an order in which neighbours contrast."""
DPI = 150
NO_MATPLOTLIB = f"Figures need matplotlib, which is not installed: {install('plot')}"

_GOLDEN = 0.618034
_BLUES = ("#e3edf7", "#b7d2ea", "#7fb0d8", "#468bc0", "#1f5f99", "#0b3560")


def pyplot() -> Any:
    """``matplotlib.pyplot``, or a sentence that says how to get it."""
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError(NO_MATPLOTLIB) from error


def density_colours() -> "Colormap":
    """Colours from light to dark blue; what lies below the lowest level stays white."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("natmix", _BLUES)


def axes_or_new(ax: "Axes | None") -> "Axes":
    """The axes given, or those of a new figure."""
    return ax if ax is not None else pyplot().subplots(figsize=(5, 4.6), dpi=DPI, layout="constrained")[1]


def figure_of(ax: "Axes") -> "Figure":
    """The figure the axes are in, the whole one."""
    figure: Any = ax.figure
    while figure.figure is not figure:
        figure = figure.figure
    return figure


def ink() -> Any:
    """The colour of words: `INK`, or the user's if matplotlib's was changed."""
    return _user_s("text.color", INK)


def grid_colour() -> Any:
    """The colour of grid lines: `GRID`, or the user's, kept faint."""
    from matplotlib.colors import to_rgba

    colour = _user_s("grid.color", GRID)
    return colour if colour == GRID else to_rgba(colour, 0.3)


def points(size: float) -> float:
    """A font size, scaled by that of the user's style."""
    return size * float(_parameters()[0]["font.size"]) / 10


def _user_s(parameter: str, ours: str) -> Any:
    now, default = _parameters()
    return ours if now[parameter] == default[parameter] else now[parameter]


def _parameters() -> tuple[Any, Any]:
    import matplotlib

    return matplotlib.rcParams, matplotlib.rcParamsDefault


def tidy(ax: "Axes") -> None:
    """Draw frame and ticks faintly, so that the data stand out."""
    ax.tick_params(colors=ink(), labelsize=points(8), length=3, width=0.6)
    ax.tick_params(which="minor", colors=ink(), labelsize=points(8))
    for side in ax.spines.values():
        side.set(color=_user_s("axes.edgecolor", FRAME), linewidth=0.8)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set(color=ink(), fontsize=points(9))


def component_colours(number: int) -> np.ndarray:
    """One colour [number, 3] per component: `PALETTE`, repeated."""
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(colour) for colour in PALETTE])
    return colours[np.arange(number) % len(PALETTE)]


def shades(colours: np.ndarray) -> np.ndarray:
    """Colours [K, 3] made slightly lighter or darker, so that neighbours of one colour differ."""
    step = (np.arange(len(colours)) * _GOLDEN) % 1.0 - 0.5
    towards = np.where(step > 0, 1.0, 0.0)[:, None]
    return colours + (towards - colours) * np.abs(step)[:, None]


def explain(ax: "Axes", title: str, **options: Any) -> None:
    """An unobtrusive legend, under a title in grey."""
    style: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": ink()}
    legend = ax.legend(title=title, title_fontproperties={"size": 8}, **style, **options)
    legend.get_title().set_color(KNOWN)


def name_axes(ax: "Axes", title: str) -> None:
    """A title in the ink of the labels, at the left."""
    ax.set_title(title, color=ink(), fontsize=10, loc="left")
