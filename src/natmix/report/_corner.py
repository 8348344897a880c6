"""Pairs of variables: samples, components and marginals in one picture."""

import dataclasses
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix._whole import whole
from natmix.mixture import Mixture
from natmix.report._components_2d import draw_ellipses
from natmix.report._corner_layout import CornerLayout
from natmix.report._corner_ticks import Ticks, ticks
from natmix.report._style import DENSITY, DPI, KNOWN, ink, points, pyplot, tidy

if TYPE_CHECKING:
    from natmix._result import Result

_MOST = 20
_FEW = 6
"""Coordinates shown of a mixture with more than `_MOST` if nobody says which."""
_SAMPLES = 2000
_BINS = 40
_TAIL = 0.002


def plot_corner(
    result: "Result | Mixture",
    *,
    dims: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    samples: int = _SAMPLES,
    components: bool = True,
    seed: int = 0,
) -> "np.ndarray":
    """Marginals on the diagonal, below it pairs: samples of the mixture with its components' ellipses.

    The coordinates are the mixture's, unconstrained for a model with bounds.

    Args:
        result: a result, or a mixture.
        dims: which coordinates, at most 20; if left out all of them, or of more than 20 the six in which
            the components differ most.
        labels: their names; the model's coordinates if left out.
        samples: how many points to draw.
        components: whether to draw ellipses of two standard deviations.
        seed: of the samples.

    Returns:
        The axes [n, n]; None above the diagonal.
    """
    return corner(result, dims, labels, samples, components, seed, traces=False)[0]


def corner(
    result: "Result | Mixture",
    dims: Sequence[int] | None,
    labels: Sequence[str] | None,
    samples: int,
    components: bool,
    seed: int,
    traces: bool,
) -> tuple[np.ndarray, CornerLayout]:
    """`plot_corner`, in a figure with or without room for the traces."""
    mixture = result if isinstance(result, Mixture) else result.mixture
    chosen = _chosen(dims, mixture)
    names = _names(result, chosen, labels)
    part = mixture.marginal(chosen)
    x = np.asarray(part.sample(seed, whole(samples, "samples", 2)), float)
    n = len(chosen)
    layout = CornerLayout(n, max(map(len, names)), traces)
    axes = np.full((n, n), None, object)
    weights, means, covariances = (np.asarray(a, float) for a in (part.weights, part.means, part.covariances))
    ranges = [np.quantile(x[:, i], [_TAIL, 1 - _TAIL]) for i in range(n)]
    ranges = [(low - 0.05 * (high - low), high + 0.05 * (high - low)) for low, high in ranges]
    numbers = [ticks(low, high, layout.panel, layout.gap, layout.small) for low, high in ranges]
    layout = dataclasses.replace(layout, figures=max(len(label) for t in numbers for label in t.labels))
    figure = pyplot().figure(figsize=layout.size, dpi=DPI)
    scale = min(1.0, layout.panel / 1.5)
    for i, j in np.argwhere(np.tri(n)).tolist():
        ax = axes[i, j] = figure.add_axes(layout.rectangle(i, j))
        if i == j:
            _marginal(ax, part.marginal(i), x[:, i], ranges[i])
        else:
            dots = {"color": DENSITY, "markersize": 1.5 * scale, "markeredgewidth": 0, "rasterized": True}
            ax.plot(x[:, j], x[:, i], "o", alpha=0.35 * scale**0.5, **dots)
            if components:
                pair = [j, i]
                draw_ellipses(ax, weights, means[:, pair], covariances[:, pair][:, :, pair], thickness=scale)
            ax.set_ylim(*ranges[i])
        ax.set_xlim(*ranges[j])
        _label(ax, i, j, names, numbers, layout)
    _remark(figure, result, len(chosen), mixture.dim, dims is None, layout)
    return axes, layout


def _label(ax: Any, i: int, j: int, names: list[str], numbers: list[Ticks], layout: CornerLayout) -> None:
    tidy(ax)
    bottom, left = i == layout.n - 1, j == 0 and i > 0
    ax.tick_params(labelbottom=bottom, labelleft=left, labelsize=points(7), length=2)
    ax.set_xticks(*numbers[j])
    if i != j:
        ax.set_yticks(*numbers[i])
    turned = layout.small
    if bottom:
        ax.set_xlabel(names[j], color=ink(), fontsize=points(8), rotation=90 if turned else 0)
        ax.tick_params(axis="x", labelrotation=90 if turned else 0)
        ax.xaxis.set_label_coords(0.5, -(layout.numbers if turned else 0.26) / layout.panel)
        ax.xaxis.label.set_verticalalignment("top")
    if left:
        ax.set_ylabel(names[i], color=ink(), fontsize=points(8), rotation=0 if turned else 90)
        ax.yaxis.set_label_coords(-layout.numbers / layout.panel, 0.5)
        if turned:
            ax.yaxis.label.set(horizontalalignment="right", verticalalignment="center")
    if i == j and layout.n > 1 and (i == 0 or layout.small):
        # Names run to the right, where nothing is.
        ax.set_title(names[i], color=ink(), fontsize=points(7), loc="left", pad=2)


def _remark(figure: Any, result: Any, shown: int, dim: int, ours: bool, layout: CornerLayout) -> None:
    parts = ["unconstrained coordinates"] if getattr(result, "model", None) is not None else []
    if shown < dim and ours:
        parts.append(f"the {shown} of {dim} in which the components differ most; dims=[...] chooses others")
    height = layout.size[1]
    where = {"x": layout.left / layout.size[0], "y": 0.06 / height}
    figure.text(s=", ".join(parts), **where, color=KNOWN, fontsize=points(7), va="bottom")


def _marginal(ax: Any, marginal: Mixture, x: np.ndarray, limits: tuple[float, float]) -> None:
    grid = np.linspace(*limits, 200)
    ax.hist(x, bins=_BINS, range=limits, density=True, histtype="stepfilled", color=DENSITY, alpha=0.2)
    ax.plot(grid, np.exp(np.asarray(marginal.log_prob(grid[:, None]), float)), color=DENSITY, linewidth=1.2)
    ax.set_yticks([])


def _chosen(dims: Sequence[int] | None, mixture: Mixture) -> list[int]:
    dim = mixture.dim
    if dims is None:
        return list(range(dim)) if dim <= _MOST else _telling(mixture)
    try:
        chosen = [operator.index(d) for d in dims]
    except TypeError:
        raise ValueError(f"dims must be a list of whole numbers, such as [0, 3], got {dims!r}.") from None
    if not 1 <= len(chosen) <= _MOST or len(set(chosen)) < len(chosen):
        raise ValueError(f"dims must name 1 to {_MOST} different coordinates, got {list(dims)}.")
    if not all(0 <= d < dim for d in chosen):
        raise ValueError(f"dims must lie between 0 and {dim - 1}, got {list(dims)}.")
    return chosen


def _telling(mixture: Mixture) -> list[int]:
    """Coordinates with the largest share of variance between components, in their order."""
    weights, means, total = (np.asarray(a, float) for a in (mixture.weights, mixture.means, mixture.std()))
    between = weights @ (means - weights @ means) ** 2 / total**2
    return sorted(np.argsort(-between, kind="stable")[:_FEW].tolist())


def _names(result: Any, dims: list[int], labels: Sequence[str] | None) -> list[str]:
    if labels is not None:
        if len(labels) != len(dims):
            raise ValueError(f"There are {len(dims)} coordinates, but {len(labels)} labels.")
        return [str(label) for label in labels]
    model = getattr(result, "model", None)
    return [f"x[{d}]" if model is None else model.coordinates[d] for d in dims]
