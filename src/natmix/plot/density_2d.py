"""A density in the plane as filled contours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.plot.grid import Bounds, Grid, on_grid
from natmix.plot.style import axes_or_new, density_colours, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MASSES = (0.995, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Shares of the mass that the contours enclose, from the outermost in."""


def plot_density_2d(
    density: Any,
    bounds: Bounds,
    *,
    levels: Sequence[float] | None = None,
    resolution: int = 200,
    ax: "Axes | None" = None,
) -> "Axes":
    """Filled contours that enclose fixed shares of the mass, so that wide and narrow modes both show.

    Args:
        density: a 2-D `Mixture`, or anything that `natmix.fit` accepts; it need not be normalised.
        bounds: (left, right, bottom, top).
        levels: log densities (normalised over ``bounds``) at which to draw the contours, increasing;
            those of `mass_levels` if left out. Give the levels of one picture to another to compare.
        resolution: points along each side of the grid.
        ax: where to draw; a new figure if left out.

    Returns:
        The axes.
    """
    grid = on_grid(density, bounds, resolution)
    return draw_grid(grid, mass_levels(grid) if levels is None else np.asarray(levels), axes_or_new(ax))


def mass_levels(grid: Grid) -> np.ndarray:
    """The log densities whose contours enclose the shares `MASSES`, increasing."""
    descending = np.sort(grid.log_density, axis=None)[::-1]
    cell = (grid.x[1] - grid.x[0]) * (grid.y[1] - grid.y[0])
    enclosed = np.cumsum(np.exp(descending) * cell)
    rank = np.minimum(np.searchsorted(enclosed, MASSES), len(descending) - 1)
    return np.unique(descending[rank])


def draw_grid(grid: Grid, levels: np.ndarray, ax: "Axes") -> "Axes":
    """Draw the part of a gridded density that lies above the lowest level."""
    floor = levels[0] - 1.0
    colours = density_colours()(np.linspace(0, 1, len(levels)))
    shown = np.maximum(grid.log_density, floor)  # contours cannot be drawn between -inf and a number
    ax.contourf(grid.x, grid.y, shown, levels=[*levels, np.inf], colors=colours)
    ax.set(xlim=(grid.x[0], grid.x[-1]), ylim=(grid.y[0], grid.y[-1]), xlabel="$x_1$", ylabel="$x_2$")
    ax.set_aspect("equal")
    tidy(ax)
    return ax
