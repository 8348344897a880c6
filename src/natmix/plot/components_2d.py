"""The components of a mixture as ellipses."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from natmix.mixture import Mixture
from natmix.plot.style import COMPONENT, axes_or_new, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Ellipse

_FAINTEST = 0.25
LIGHTEST = 1e-3
"""Lighter components are not drawn by default."""


def plot_components_2d(
    mixture: Mixture, *, deviations: float = 2.0, min_weight: float = LIGHTEST, ax: "Axes | None" = None
) -> "Axes":
    """An ellipse per component: the heavier the component, the stronger its line.

    Args:
        mixture: in two dimensions.
        deviations: how many standard deviations the ellipses reach.
        min_weight: lighter components are not drawn.
        ax: where to draw; a new figure if left out.

    Returns:
        The axes.
    """
    ax = axes_or_new(ax)
    weights = np.asarray(mixture.weights, dtype=float)
    means, covariances = (np.asarray(a, dtype=float) for a in (mixture.means, mixture.covariances))
    draw_ellipses(ax, weights, means, covariances, deviations, min_weight)
    ax.autoscale_view()
    tidy(ax)
    return ax


def heavy(weights: Float[np.ndarray, " K"], min_weight: float = LIGHTEST) -> Bool[np.ndarray, " K"]:
    """Which components are drawn: at least the heaviest."""
    return weights >= min(min_weight, weights.max())


def draw_ellipses(
    ax: "Axes",
    weights: Float[np.ndarray, " K"],
    means: Float[np.ndarray, "K 2"],
    covariances: Float[np.ndarray, "K 2 2"],
    deviations: float = 2.0,
    min_weight: float = LIGHTEST,
    thickness: float = 1.0,
) -> None:
    """The ellipses alone, their lines ``thickness`` times as wide as usual."""
    for row in np.flatnonzero(heavy(weights, min_weight)):
        strength = np.sqrt(weights[row] / weights.max())
        ellipse = _ellipse(means[row], covariances[row], deviations)
        ellipse.set(
            fill=False,
            edgecolor=COMPONENT,
            linewidth=thickness * (0.6 + 1.2 * strength),
            alpha=_FAINTEST + (1 - _FAINTEST) * strength,
        )
        ax.add_patch(ellipse)


def _ellipse(mean: np.ndarray, covariance: np.ndarray, deviations: float) -> "Ellipse":
    from matplotlib.patches import Ellipse

    variances, axes = np.linalg.eigh(covariance)
    width, height = 2 * deviations * np.sqrt(variances)
    angle = np.degrees(np.arctan2(axes[1, 0], axes[0, 0]))
    return Ellipse(xy=(mean[0], mean[1]), width=width, height=height, angle=angle)
