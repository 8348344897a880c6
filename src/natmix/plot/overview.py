"""A 2-D fit in one figure: densities, components, ELBO."""

from typing import TYPE_CHECKING, Any

from natmix.plot.axes import AxesTuple
from natmix.plot.components_2d import plot_components_2d
from natmix.plot.density_2d import draw_grid, mass_levels
from natmix.plot.grid import Bounds, on_grid, window
from natmix.plot.style import COMPONENT, DPI, INK, pyplot
from natmix.plot.trajectory import plot_trajectory
from natmix.result.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_overview(
    result: Result,
    target: Any,
    *,
    bounds: Bounds | None = None,
    log_evidence: float | None = None,
    resolution: int = 240,
) -> "tuple[Axes, Axes, Axes, Axes]":
    """Target density, fitted density with its components, ELBO and number of components, side by side.

    Both densities have the same contours, so that equal colours mean equal densities.

    Args:
        result: the result of `natmix.fit` on a 2-D target.
        target: what was fitted, anything that `natmix.fit` accepts.
        bounds: (left, right, bottom, top). Default: around the mixture.
        log_evidence: the log normaliser of the target, if known.
        resolution: points along each side of the grid on which densities are evaluated.

    Returns:
        The axes of target, fit, ELBO and components; ``axes[0].figure`` is the figure.
    """
    mixture = result.mixture
    if mixture.dim != 2:
        raise ValueError(f"An overview needs two dimensions, the mixture has {mixture.dim}.")
    bounds = window(mixture) if bounds is None else bounds
    truth, fitted = (on_grid(d, bounds, resolution) for d in (target, mixture))
    left, middle, above, below = _panels()
    levels = mass_levels(truth)
    draw_grid(truth, levels, left)
    draw_grid(fitted, levels, middle)
    plot_components_2d(mixture, ax=middle)
    middle.set(xlim=bounds[:2], ylim=bounds[2:], ylabel="")
    middle.tick_params(labelleft=False)
    _explain_ellipses(middle)
    plot_trajectory(result, log_evidence=log_evidence, axes=(above, below))
    _name(left, "Target density")
    _name(middle, f"Fitted density, {_count(mixture.num_components)}")
    _name(above, f"{result.algorithm.codename}, ELBO {result.elbo}")
    return AxesTuple((left, middle, above, below))


def _panels() -> "tuple[Axes, Axes, Axes, Axes]":
    figure = pyplot().figure(figsize=(12.5, 4.3), dpi=DPI, layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=(1.12, 1.12, 1), height_ratios=(1.5, 1))
    left = figure.add_subplot(grid[:, 0])
    middle = figure.add_subplot(grid[:, 1])
    above = figure.add_subplot(grid[0, 2])
    below = figure.add_subplot(grid[1, 2], sharex=above)
    above.tick_params(labelbottom=False)
    return left, middle, above, below


def _name(ax: "Axes", title: str) -> None:
    ax.set_title(title, color=INK, fontsize=10)


def _count(components: int) -> str:
    return "1 component" if components == 1 else f"{components} components"


def _explain_ellipses(ax: "Axes") -> None:
    from matplotlib.lines import Line2D

    line = Line2D(
        [], [], color=COMPONENT, linewidth=1.4, label="components above 0.1% (2 standard deviations)"
    )
    ax.legend(handles=[line], loc="upper center", frameon=False, fontsize=8, labelcolor=INK)
