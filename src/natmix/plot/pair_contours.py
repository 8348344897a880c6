"""Contours of a pair of coordinates: of the mixture, and of its target by importance weights."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.ndimage import gaussian_filter

from natmix.diagnostics.evidence import gather_evidence
from natmix.mixture import Mixture
from natmix.plot.style import DENSITY, KNOWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from natmix.result.result import Result

ENCLOSED = (0.9, 0.5)
"""Shares of the mass inside of the contours."""
ENOUGH = 100
"""Effective samples below which contours of the target would be a few spots."""
_FINE, _COARSE = 64, 36
"""Points along a side of the grid, of large and of small panels."""
_SMALL = 1.2
_PRIOR = 0.5
"""Draws whose worth of the mean weight is added everywhere: without draws nearby the target is taken for the
mixture."""

Range = tuple[float, float]


class WeightedDraws(NamedTuple):
    """Samples of the mixture with importance weights whose mean is 1."""

    x: Float[np.ndarray, "N D"]
    weights: Float[np.ndarray, " N"]


def weighted_draws(result: "Result | Mixture") -> tuple[WeightedDraws | None, str]:
    """The samples behind the ELBO with their weights; or None, and why the target has no contours."""
    draws = None if isinstance(result, Mixture) else result.draws
    if draws is None or len(draws) < 2:
        return None, ""
    evidence = gather_evidence(draws)
    if not evidence.effective_samples >= ENOUGH:
        return None, f"no contours of the target: {evidence.effective_samples:.0f} effective samples"
    return WeightedDraws(draws.x[draws.log_target < np.inf], evidence.weights), ""


class PairGrid(NamedTuple):
    """Densities at the centres of a grid's cells, rows along y.

    Attributes:
        x: horizontal centres.
        y: vertical centres.
        mixture: its density.
        target: the target's, with the same mass over the grid as the weights say; None if it is not known.
    """

    x: Float[np.ndarray, " R"]
    y: Float[np.ndarray, " R"]
    mixture: Float[np.ndarray, "R R"]
    target: Float[np.ndarray, "R R"] | None


def pair_grid(
    pair: Mixture, x_range: Range, y_range: Range, draws: WeightedDraws | None, resolution: int = _FINE
) -> PairGrid:
    """Both densities of two coordinates.

    The target's is p(x) = q(x) E[w | x]: the mixture's, in closed form, times the mean importance weight of
    the draws nearby. Where the fit is good the weights are nearly equal, so that the estimate has less noise
    than a density estimate of the draws, and no modes are smeared into each other.

    Args:
        pair: the mixture's marginal of the two coordinates.
        x_range: of the first one.
        y_range: of the second one.
        draws: of the pair; None if the target is not known.
        resolution: cells along a side.
    """
    edges = [np.linspace(*ends, resolution + 1) for ends in (x_range, y_range)]
    x, y = ((e[1:] + e[:-1]) / 2 for e in edges)
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2).astype(pair.dtype)
    density = np.exp(np.asarray(pair.log_prob(points), float)).reshape(resolution, resolution)
    if draws is None:
        return PairGrid(x, y, density, None)
    cells = [e[1] - e[0] for e in edges]
    within = np.sqrt(np.asarray(pair.weights, float) @ np.asarray(pair.components.std(), float) ** 2)
    widths = [within[d] * len(draws.x) ** (-1 / 6) / cells[d] for d in (1, 0)]
    return PairGrid(x, y, density, density * _mean_weight(draws, edges, widths))


def _mean_weight(
    draws: WeightedDraws, edges: Sequence[np.ndarray], widths: Sequence[float]
) -> Float[np.ndarray, "R R"]:
    """The mean weight of the draws around every cell, by a Gaussian kernel."""
    y, x = draws.x[:, 1], draws.x[:, 0]
    counts, weights = (
        gaussian_filter(
            np.histogram2d(y, x, bins=(edges[1], edges[0]), weights=w)[0], widths, mode="constant"
        )
        for w in (None, draws.weights)
    )
    peak = 1 / (2 * np.pi * max(widths[0], 0.4) * max(widths[1], 0.4))
    return np.asarray((weights + _PRIOR * peak) / (counts + _PRIOR * peak))


def mass_heights(density: Float[np.ndarray, "R R"], shares: Sequence[float] = ENCLOSED) -> list[float]:
    """The heights whose contours enclose these shares of a grid's mass, increasing."""
    descending = np.sort(density, axis=None)[::-1]
    enclosed = np.cumsum(descending) / descending.sum()
    ranks = np.minimum(np.searchsorted(enclosed, np.asarray(shares)), descending.size - 1)
    return [float(height) for height in descending[ranks]]


def draw_pair(
    ax: "Axes", pair: Mixture, x_range: Range, y_range: Range, draws: WeightedDraws | None, inches: float
) -> None:
    """Contours of 50% and 90%: the target as grey areas, the mixture as blue lines."""
    grid = pair_grid(pair, x_range, y_range, draws, _FINE if inches >= _SMALL else _COARSE)
    if grid.target is not None:
        heights = _increasing(mass_heights(grid.target))
        for height in heights:
            ax.contourf(grid.x, grid.y, grid.target, levels=[height, np.inf], colors=[KNOWN], alpha=0.28)
    thin = min(1.0, inches / 1.5)
    ax.contour(
        grid.x,
        grid.y,
        grid.mixture,
        levels=_increasing(mass_heights(grid.mixture)),
        colors=[DENSITY],
        linewidths=[0.8 * thin, 1.3 * thin],
    )
    ax.set(xlim=x_range, ylim=y_range)


def _increasing(heights: list[float]) -> list[float]:
    """Levels as contours take them, which must differ."""
    return sorted(set(heights))
