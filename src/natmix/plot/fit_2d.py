"""A fitted mixture over its target, in the plane."""

from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.checks import as_int
from natmix.mixture import Mixture
from natmix.plot.components_2d import plot_components_2d
from natmix.plot.density_2d import plot_density_2d
from natmix.plot.grid import Bounds, window
from natmix.plot.style import INK, axes_or_new
from natmix.result.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_fit_2d(
    fit: Result | Mixture,
    target: Any = None,
    *,
    dims: tuple[int, int] | None = None,
    bounds: Bounds | None = None,
    samples: int = 300,
    seed: int = 0,
    resolution: int = 200,
    ax: "Axes | None" = None,
) -> "Axes":
    """The target's density in blue, the mixture's components as orange ellipses, its samples as dots.

    Args:
        fit: a result or a mixture.
        target: what was fitted, anything that `natmix.fit` accepts; without it the blue is the
            density of the mixture itself.
        dims: the two dimensions to show of a mixture with more than two (its marginal is drawn).
        bounds: (left, right, bottom, top). Default: around the mixture.
        samples: how many samples of the mixture to show.
        seed: seed of the samples.
        resolution: points along each side of the grid on which densities are evaluated.
        ax: where to draw; a new figure if left out.

    Returns:
        The axes.
    """
    mixture = _in_the_plane(mixture_of(fit), target, dims)
    ax = axes_or_new(ax)
    bounds = window(mixture) if bounds is None else bounds
    plot_density_2d(mixture if target is None else target, bounds, resolution=resolution, ax=ax)
    if as_int(samples, "samples", 0):
        x = np.asarray(mixture.sample(samples, key=seed))
        ax.scatter(x[:, 0], x[:, 1], s=7, color=INK, edgecolors="white", linewidths=0.4, label="samples")
    plot_components_2d(mixture, ax=ax)
    ax.set(xlim=bounds[:2], ylim=bounds[2:])
    if dims is not None:
        ax.set(xlabel=f"$x_{{{dims[0] + 1}}}$", ylabel=f"$x_{{{dims[1] + 1}}}$")
    return ax


def mixture_of(fit: Result | Mixture) -> Mixture:
    """The mixture of a result, or the mixture itself."""
    if isinstance(fit, Result):
        return fit.mixture
    if isinstance(fit, Mixture):
        return fit
    raise ValueError(f"Give the result of natmix.fit or a Mixture to draw, got {type(fit).__name__}.")


def _in_the_plane(mixture: Mixture, target: Any, dims: tuple[int, int] | None) -> Mixture:
    if mixture.dim == 2 and dims is None:
        return mixture
    if dims is None:
        raise ValueError(f"The mixture has {mixture.dim} dimensions; choose two to show, as in dims=(0, 1).")
    if len(dims) != 2:
        raise ValueError(f"dims must name two dimensions, got {dims}.")
    if target is not None:
        raise ValueError("The marginal of a target is not known: leave out either target or dims.")
    return mixture.marginal(dims)
