"""Pairs of variables: samples, components and marginals in one picture."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.mixture import Mixture
from natmix.report._components_2d import plot_components_2d
from natmix.report._style import DENSITY, DPI, INK, pyplot, tidy

if TYPE_CHECKING:
    from natmix._result import Result

_MOST = 20
_FEW = 6
"""Dimensions shown if nobody says which; more are readable up to `_MOST`."""
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
        dims: which coordinates, at most 20; the first six if left out.
        labels: their names; the model's coordinates if left out.
        samples: how many points to draw.
        components: whether to draw ellipses of two standard deviations.
        seed: of the samples.

    Returns:
        The axes [n, n]; those above the diagonal are empty and switched off.
    """
    mixture = result if isinstance(result, Mixture) else result.mixture
    chosen = _chosen(dims, mixture.dim)
    names = _names(result, chosen, labels)
    part = mixture.marginal(chosen)
    x = np.asarray(part.sample(seed, samples), float)
    plt = pyplot()
    n = len(chosen)
    size = min(1.9, 14 / n)
    figure, axes = plt.subplots(
        n, n, figsize=(size * n + 0.8, size * n + 0.8), dpi=DPI, squeeze=False, layout="constrained"
    )
    ranges = [np.quantile(x[:, i], [_TAIL, 1 - _TAIL]) for i in range(n)]
    ranges = [(low - 0.05 * (high - low), high + 0.05 * (high - low)) for low, high in ranges]
    for i in range(n):
        for j in range(n):
            ax = axes[i, j]
            if j > i:
                ax.axis("off")
                continue
            if i == j:
                _marginal(ax, part.marginal(i), x[:, i], ranges[i])
            else:
                ax.plot(x[:, j], x[:, i], ".", color=DENSITY, markersize=1.5, alpha=0.25, rasterized=True)
                if components:
                    plot_components_2d(part.marginal([j, i]), ax=ax)
                ax.set_ylim(*ranges[i])
            ax.set_xlim(*ranges[j])
            tidy(ax)
            ax.tick_params(labelbottom=i == n - 1, labelleft=j == 0 and i > 0, labelsize=7)
            ax.locator_params(nbins=3)
            ax.set_xlabel(names[j] if i == n - 1 else "", color=INK, fontsize=8)
            ax.set_ylabel(names[i] if j == 0 and i > 0 else "", color=INK, fontsize=8)
    if getattr(result, "model", None) is not None:
        figure.supxlabel("unconstrained coordinates", color=INK, fontsize=8)
    figure.align_labels()
    return axes


def _marginal(ax: Any, marginal: Mixture, x: np.ndarray, limits: tuple[float, float]) -> None:
    grid = np.linspace(*limits, 200)
    ax.hist(x, bins=_BINS, range=limits, density=True, color=DENSITY, alpha=0.2)
    ax.plot(grid, np.exp(np.asarray(marginal.log_prob(grid[:, None]), float)), color=DENSITY, linewidth=1.2)
    ax.set_yticks([])


def _chosen(dims: Sequence[int] | None, dim: int) -> list[int]:
    if dims is None:
        return list(range(min(dim, _FEW)))
    chosen = [int(d) for d in dims]
    if not 1 <= len(chosen) <= _MOST or len(set(chosen)) < len(chosen):
        raise ValueError(f"dims must name 1 to {_MOST} different coordinates, got {list(dims)}.")
    if not all(0 <= d < dim for d in chosen):
        raise ValueError(f"dims must lie between 0 and {dim - 1}, got {list(dims)}.")
    return chosen


def _names(result: Any, dims: list[int], labels: Sequence[str] | None) -> list[str]:
    if labels is not None:
        if len(labels) != len(dims):
            raise ValueError(f"There are {len(dims)} coordinates, but {len(labels)} labels.")
        return list(labels)
    model = getattr(result, "model", None)
    return [f"x[{d}]" if model is None else model.coordinates[d] for d in dims]
