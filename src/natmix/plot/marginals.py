"""The marginals of a mixture, dimension by dimension, beside those of its target."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Float

from natmix.mixture import Mixture
from natmix.plot.axes import AxesList
from natmix.plot.style import DENSITY, DPI, FRAME, INK, KNOWN, figure_of, pyplot, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 5
_MOST_BINS = 150
_TAIL = 0.004
_MARGIN = 0.04


class Marginal(NamedTuple):
    """Fit and target in one dimension, both averaged over the same bins.

    Attributes:
        dim: which one.
        edges: of the bins [B + 1].
        fit: mean density of the fit in every bin [B], exact.
        target: mean density of the target's samples in every bin [B], or None.
        distance: the largest difference of the two distribution functions at the edges, or None.
    """

    dim: int
    edges: np.ndarray
    fit: np.ndarray
    target: np.ndarray | None
    distance: float | None


def plot_marginals(
    mixture: Mixture,
    samples: Float[np.ndarray, "N D"] | None = None,
    *,
    dims: Sequence[int] | None = None,
    most: int = 20,
    bins: int | None = None,
    source: str = "target",
    labels: Sequence[str] | None = None,
    axes: "Sequence[Axes] | None" = None,
) -> "list[Axes]":
    """A panel per dimension: the fit as a blue line over the samples of the target in grey.

    Neither is smoothed. The line is the mixture's probability of every bin divided by the bin's width, in
    closed form. The grey is the share of the samples in the bin. The number in a panel is the largest
    difference of the two distribution functions (Kolmogorov-Smirnov, at the edges of the bins).

    Args:
        mixture: the fit.
        samples: samples of the target; without them the fit is shown alone.
        dims: the dimensions to show, in this order. Default: all, or, if there are more than ``most``, those
            with the largest difference (without samples: evenly spaced ones).
        most: the largest number of dimensions shown by default.
        bins: bins in every panel. Default: up to 150, more for more samples.
        source: what the samples are, for the legend.
        labels: names of all dimensions.
        axes: where to draw, one for each dimension shown; a new figure if left out.

    Returns:
        The axes, one per dimension shown.
    """
    data = None if samples is None else _checked(samples, mixture.dim)
    bins = _suitable_bins(data) if bins is None else bins
    if bins < 1:
        raise ValueError(f"There must be at least one bin, got bins={bins}.")
    curves = _chosen(mixture, data, dims, most, bins)
    panels = list(axes) if axes is not None else _panels(len(curves))
    if len(panels) != len(curves):
        raise ValueError(f"There are {len(curves)} dimensions to show, but {len(panels)} axes to draw on.")
    for ax, curve in zip(panels, curves, strict=True):
        _draw(ax, curve, f"$x_{{{curve.dim + 1}}}$" if labels is None else labels[curve.dim])
    if axes is None:
        title = _title(curves, mixture.dim, chosen=dims is None)
        _explain(figure_of(panels[0]), title, "" if data is None else source)
    return AxesList(panels)


def marginals(
    mixture: Mixture, samples: Float[np.ndarray, "N D"] | None, dims: Sequence[int], bins: int
) -> list[Marginal]:
    """Fit and target in each of these dimensions, on bins that hold nearly all of both."""
    mean, std, weights = (
        np.asarray(a, dtype=float) for a in (mixture.means, mixture.components.std(), mixture.weights)
    )
    ends = np.asarray(mixture.quantile([_TAIL, 1 - _TAIL]), dtype=float)

    def one(d: int) -> Marginal:
        x = None if samples is None else np.sort(samples[:, d]).astype(float)
        edges = _edges(
            ends[:, d] if x is None else np.append(ends[:, d], np.quantile(x, [_TAIL, 1 - _TAIL])), bins
        )
        width = np.diff(edges)
        below = np.asarray(ndtr((edges[:, None] - mean[:, d]) / std[:, d]), dtype=float) @ weights
        fit = np.diff(below) / width
        if x is None:
            return Marginal(d, edges, fit, None, None)
        counted = np.searchsorted(x, edges, side="right") / len(x)
        return Marginal(d, edges, fit, np.diff(counted) / width, float(np.abs(counted - below).max()))

    return [one(d) for d in dims]


def _suitable_bins(samples: np.ndarray | None) -> int:
    """As many as the cube root of the number of samples asks for: 70 for 10,000."""
    return _MOST_BINS if samples is None else int(np.clip(3.2 * len(samples) ** (1 / 3), 10, _MOST_BINS))


def _edges(ends: np.ndarray, bins: int) -> np.ndarray:
    low, high = ends.min(), ends.max()
    margin = _MARGIN * (high - low)
    return np.linspace(low - margin, high + margin, bins + 1)


def _chosen(
    mixture: Mixture, samples: np.ndarray | None, dims: Sequence[int] | None, most: int, bins: int
) -> list[Marginal]:
    D = mixture.dim
    if dims is not None:
        if not len(dims) or any(not 0 <= d < D for d in dims):
            raise ValueError(f"dims must name dimensions from 0 to {D - 1}, got {list(dims)}.")
        return marginals(mixture, samples, dims, bins)
    if most < 1:
        raise ValueError(f"Show at least one dimension, got most={most}.")
    if samples is None and most < D:
        return marginals(mixture, None, [round(d) for d in np.linspace(0, D - 1, most)], bins)
    curves = marginals(mixture, samples, range(D), bins)
    if most >= D:
        return curves
    worst = np.argsort([curve.distance or 0.0 for curve in curves])[-most:]
    return [curves[d] for d in np.sort(worst)]


def _checked(samples: Float[np.ndarray, "N D"], dim: int) -> np.ndarray:
    x = np.asarray(samples)
    if x.ndim != 2 or x.shape[1] != dim or not len(x):
        raise ValueError(f"The samples must be an array [N, {dim}] like the mixture, got shape {x.shape}.")
    if not np.isfinite(x).all():
        raise ValueError("The samples must be finite.")
    return x


def _panels(number: int) -> "list[Axes]":
    columns = min(_COLUMNS, number)
    rows = math.ceil(number / columns)
    size = (max(2.1 * columns, 5.0), 1.35 * rows + 0.75)
    figure = pyplot().figure(figsize=size, dpi=DPI, layout="constrained")
    grid = figure.add_gridspec(rows, columns)
    return [figure.add_subplot(grid[divmod(i, columns)]) for i in range(number)]


def _draw(ax: "Axes", curve: Marginal, label: str) -> None:
    middle = (curve.edges[1:] + curve.edges[:-1]) / 2
    if curve.target is None:
        ax.fill_between(middle, curve.fit, color=DENSITY, alpha=0.15, linewidth=0)
    else:
        ax.stairs(curve.target, curve.edges, fill=True, color=FRAME)
    ax.plot(middle, curve.fit, color=DENSITY, linewidth=1.1)
    top = max(curve.fit.max(), 0 if curve.target is None else curve.target.max())
    ax.set(xlim=(curve.edges[0], curve.edges[-1]), ylim=(0, 1.28 * top), yticks=[])
    ax.locator_params(axis="x", nbins=4)
    tidy(ax)
    ax.tick_params(labelsize=7, pad=2)
    for side in ("left", "right", "top"):
        ax.spines[side].set_visible(False)
    ax.text(0.0, 0.99, label, transform=ax.transAxes, va="top", color=INK, fontsize=9)
    if curve.distance is not None:
        text = f"{curve.distance:.3f}"
        ax.text(1.0, 0.97, text, transform=ax.transAxes, va="top", ha="right", color=KNOWN, fontsize=7)


def _explain(figure: "Figure", title: str, source: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure.suptitle(title, color=INK, fontsize=10, x=0.01, ha="left")
    if source:
        handles = [
            Line2D([], [], color=DENSITY, linewidth=1.4, label="fit"),
            Patch(color=FRAME, label=f"{source}; numbers: largest difference of the distribution functions"),
        ]
        style: dict[str, Any] = {"ncols": 2, "frameon": False, "fontsize": 8, "labelcolor": INK}
        figure.legend(handles=handles, loc="outside lower left", **style)


def _title(curves: list[Marginal], dim: int, chosen: bool) -> str:
    shown, compared = len(curves), curves[0].distance is not None
    which = f"{shown} of {dim} marginals"
    if shown == dim:
        which = "the only marginal" if dim == 1 else f"all {dim} marginals"
    elif chosen and compared:
        which = f"the {shown} of {dim} marginals that differ most"
    return ("Fit and target: " if compared else "Fit: ") + which
