"""Pairs of variables: samples, components and marginals in one picture."""

import dataclasses
import operator
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.checks import as_int
from natmix.mixture import Mixture
from natmix.plot.axes import AxesArray
from natmix.plot.components_2d import draw_ellipses, heavy
from natmix.plot.coordinate_names import axis_names, bare, names
from natmix.plot.corner_layout import CornerLayout
from natmix.plot.corner_ticks import Ticks, ticks
from natmix.plot.pair_contours import draw_pair, weighted_draws
from natmix.plot.style import DENSITY, DPI, KNOWN, ink, points, pyplot, tidy
from natmix.text.suggestions import meant

if TYPE_CHECKING:
    from natmix.result.result import Result

_MAX_SHOWN = 20
_FEW = 6
"""Coordinates shown of a mixture with more than `_MAX_SHOWN` by default."""
_SAMPLES = 2000
_BINS = 40
_TAIL = 0.002
_WIDENED = 2.0
"""The largest factor by which axes are widened to hold the ellipses of light components."""
_LETTER = 0.056
"""Width of a remark's letter, in inches."""


def plot_corner(
    result: "Result | Mixture",
    *,
    dims: Sequence[int | str] | None = None,
    labels: Sequence[str] | None = None,
    samples: int = _SAMPLES,
    components: bool = True,
    contours: bool = True,
    seed: int = 0,
) -> "np.ndarray":
    """Marginals on the diagonal, below it samples with components, above it contours of mixture and target.

    Contours enclose 50% and 90% of the mass of a pair. Blue lines are the mixture's, in closed form. Grey
    areas are the target's, estimated as the mixture's density times the mean importance weight of the samples
    nearby (those behind the ELBO; the target is not evaluated). Where lines and areas agree the fit is good
    in these two coordinates. They are marginals of the target, not slices through it, so they hold in any
    dimension. A mixture alone, a result without samples, or one with fewer than 100 effective samples has
    lines only.

    The coordinates are the mixture's, unconstrained for a model with bounds.

    Args:
        result: a result, or a mixture.
        dims: the coordinates to show, at most 20, by number or name (``["mu", "theta[3]"]``; the name of an
            array means all its entries). Default: all, or, if there are more than 20, the six in which the
            drawn components differ most.
        labels: names of these coordinates. Default: the model's names, shortened, with the transformation.
        samples: how many points to draw.
        components: whether to draw components of at least 0.1% as ellipses of two standard deviations.
        contours: whether to draw contours above the diagonal.
        seed: seed of the samples.

    Returns:
        The axes [n, n]; None above the diagonal without contours.
    """
    return corner(result, dims, labels, samples, components, contours, seed, traces=False)[0]


def corner(
    result: "Result | Mixture",
    dims: Sequence[int | str] | None,
    labels: Sequence[str] | None,
    samples: int,
    components: bool,
    contours: bool,
    seed: int,
    traces: bool,
) -> tuple[np.ndarray, CornerLayout]:
    """`plot_corner`, in a figure with or without room for the traces."""
    mixture = result if isinstance(result, Mixture) else result.mixture
    chosen = _chosen(dims, mixture, names(result, mixture.dim))
    shown, transformed = _names(result, mixture.dim, chosen, labels)
    part = mixture.marginal(chosen)
    x = np.asarray(part.sample(as_int(samples, "samples", 2), key=seed), float)
    n = len(chosen)
    layout = CornerLayout(n, max(map(len, shown)), traces, whole=contours and n > 1)
    axes = AxesArray.of(np.full((n, n), None, object))
    weights, means, covariances = (np.asarray(a, float) for a in (part.weights, part.means, part.covariances))
    ranges = [np.quantile(x[:, i], [_TAIL, 1 - _TAIL]) for i in range(n)]
    if components and n > 1:
        ranges = [_widened(r, means[:, i], covariances[:, i, i], weights) for i, r in enumerate(ranges)]
    ranges = [(low - 0.05 * (high - low), high + 0.05 * (high - low)) for low, high in ranges]
    numbers = [ticks(low, high, layout.panel, layout.gap, layout.small) for low, high in ranges]
    layout = dataclasses.replace(layout, figures=max(len(label) for t in numbers for label in t.labels))
    figure = pyplot().figure(figsize=layout.size, dpi=DPI)
    scale = min(1.0, layout.panel / 1.5)
    draws, why_not = weighted_draws(result) if contours and n > 1 else (None, "")
    for i, j in np.argwhere(np.ones((n, n)) if contours else np.tri(n)).tolist():
        ax = axes[i, j] = figure.add_axes(layout.rectangle(i, j))
        if i == j:
            _marginal(ax, part.marginal(i), x[:, i], ranges[i])
        elif i < j:
            pair = None if draws is None else draws._replace(x=draws.x[:, [chosen[j], chosen[i]]])
            draw_pair(ax, part.marginal([j, i]), ranges[j], ranges[i], pair, layout.panel)
        else:
            dots = {"color": DENSITY, "markersize": 1.5 * scale, "markeredgewidth": 0, "rasterized": True}
            ax.plot(x[:, j], x[:, i], "o", alpha=0.35 * scale**0.5, **dots)
            if components:
                two = [j, i]
                draw_ellipses(ax, weights, means[:, two], covariances[:, two][:, :, two], thickness=scale)
            ax.set_ylim(*ranges[i])
        ax.set_xlim(*ranges[j])
        _label(ax, i, j, shown, numbers, layout)
    remarks = ["unconstrained coordinates"] if transformed else []
    if n < mixture.dim and dims is None:
        remarks.append(_choice(n, mixture))
    if components and n > 1:
        remarks += _left_out(weights)
    if layout.whole:
        grey = "" if draws is None else "; grey: the target by importance weights"
        remarks += [f"above the diagonal 50% and 90% contours, blue: mixture{grey}", *filter(None, [why_not])]
    _remark(figure, remarks, layout)
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
        ax.xaxis.set_label_coords(0.5, -(layout.numbers if turned else 0.26) / layout.high)
        ax.xaxis.label.set_verticalalignment("top")
    if left:
        ax.set_ylabel(names[i], color=ink(), fontsize=points(8), rotation=0 if turned else 90)
        ax.yaxis.set_label_coords(-layout.numbers / layout.panel, 0.5)
        if turned:
            ax.yaxis.label.set(horizontalalignment="right", verticalalignment="center")
    if i == j and layout.n > 1 and (i == 0 or layout.small):
        # Names run to the right, where nothing is.
        ax.set_title(names[i], color=ink(), fontsize=points(7), loc="left", pad=2)


def _choice(shown: int, mixture: Mixture) -> str:
    if _alike(mixture):
        return f"the first {shown} of {mixture.dim} (dims=[...] chooses others)"
    return f"the {shown} of {mixture.dim} in which the components differ most (dims=[...] chooses others)"


def _left_out(weights: np.ndarray) -> list[str]:
    """A remark on components that are too light to be drawn."""
    drawn, n = heavy(weights), len(weights)
    if drawn.all():
        return []
    others = "the other has" if n - drawn.sum() == 1 else "the others have"
    return [f"{drawn.sum()} of {n} components drawn, {others} {weights[~drawn].sum() / weights.sum():.2%}"]


def _widened(
    limits: Sequence[float], means: np.ndarray, variances: np.ndarray, weights: np.ndarray
) -> tuple[float, float]:
    """Limits of an axis that contain the drawn ellipses, unless these are far away."""
    low, high = limits
    reach, room = 2 * np.sqrt(variances), (_WIDENED - 1) / 2 * (high - low)
    drawn = heavy(weights)
    lowest, highest = np.min((means - reach)[drawn]), np.max((means + reach)[drawn])
    return float(np.clip(lowest, low - room, low)), float(np.clip(highest, high, high + room))


def _remark(figure: Any, remarks: list[str], layout: CornerLayout) -> None:
    width, height = layout.size
    where = {"x": layout.left / width, "y": 0.06 / height}
    text = textwrap.fill("; ".join(remarks), max(int((width - layout.left) / _LETTER), 20))
    figure.text(s=text, **where, color=KNOWN, fontsize=points(7), va="bottom")


def _marginal(ax: Any, marginal: Mixture, x: np.ndarray, limits: tuple[float, float]) -> None:
    grid = np.linspace(*limits, 200)
    ax.hist(x, bins=_BINS, range=limits, density=True, histtype="stepfilled", color=DENSITY, alpha=0.2)
    ax.plot(grid, np.exp(np.asarray(marginal.log_prob(grid[:, None]), float)), color=DENSITY, linewidth=1.2)
    ax.set_yticks([])


def _chosen(dims: Sequence[int | str] | None, mixture: Mixture, known: list[str]) -> list[int]:
    dim = mixture.dim
    if dims is None:
        return list(range(dim)) if dim <= _MAX_SHOWN else _telling(mixture)
    if isinstance(dims, str):
        dims = [dims]
    try:
        chosen = [
            k for d in dims for k in (_by_name(d, known) if isinstance(d, str) else [operator.index(d)])
        ]
    except TypeError:
        raise ValueError(
            f"dims must be a list of whole numbers or names, such as [0, 3] or {known[:2]}, got {dims!r}."
        ) from None
    if not 1 <= len(chosen) <= _MAX_SHOWN or len(set(chosen)) < len(chosen):
        raise ValueError(f"dims must name 1 to {_MAX_SHOWN} different coordinates, got {list(dims)}.")
    if not all(0 <= d < dim for d in chosen):
        raise ValueError(f"dims must lie between 0 and {dim - 1}, got {list(dims)}.")
    return chosen


def _by_name(name: str, known: list[str]) -> list[int]:
    """The coordinate of that name, or all entries of the array."""
    found = [i for i, k in enumerate(known) for b in {k, bare(k)} if b == name or b.startswith(f"{name}[")]
    if not found:
        few = ", ".join(known[:6]) + (", …" if len(known) > 6 else "")
        raise ValueError(f"dims names {name!r}, but the coordinates are {few}.{meant(name, known)}")
    return found


def _telling(mixture: Mixture) -> list[int]:
    """Coordinates with the largest share of variance between the components drawn, in their order."""
    weights, means, total = (np.asarray(a, float) for a in (mixture.weights, mixture.means, mixture.std()))
    weights = np.where(heavy(weights), weights, 0.0)
    weights = weights / weights.sum()
    between = weights @ (means - weights @ means) ** 2 / total**2
    return sorted(np.argsort(-between, kind="stable")[:_FEW].tolist())


def _alike(mixture: Mixture) -> bool:
    """Whether fewer than two components are drawn, so that none can differ."""
    return int(heavy(np.asarray(mixture.weights, float)).sum()) < 2


def _names(result: Any, dim: int, dims: list[int], labels: Sequence[str] | None) -> tuple[list[str], bool]:
    """Names of the axes, and whether a coordinate is transformed."""
    shown, transformed = axis_names(result, dim, dims)
    if labels is None:
        return shown, transformed
    if len(labels) != len(dims):
        raise ValueError(f"There are {len(dims)} coordinates, but {len(labels)} labels.")
    return [str(label) for label in labels], transformed
