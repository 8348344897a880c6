"""The first picture of a fit: corner plot, ELBO and number of components."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.estimate import Estimate
from natmix.plot.corner import _SAMPLES, corner
from natmix.plot.style import figure_of
from natmix.plot.trajectory import plot_trajectory
from natmix.result.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class FitAxes:
    """The axes of `plot_fit`; ``axes[i, j]`` is a panel of the corner plot.

    Attributes:
        corner: axes of the corner plot [n, n], None above the diagonal without contours.
        elbo: axes of the ELBO; None without traces.
        components: axes of the number of components; None without traces.
    """

    corner: np.ndarray
    elbo: "Axes | None"
    components: "Axes | None"

    def _ipython_display_(self) -> None:
        """A notebook shows the figure alone."""

    @property
    def figure(self) -> "Figure":
        """The figure they are in."""
        return figure_of(self.corner[0, 0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the corner plot."""
        return self.corner.shape

    def __getitem__(self, where: Any) -> Any:
        return self.corner[where]


def plot_fit(
    result: Result,
    *,
    dims: Sequence[int | str] | None = None,
    labels: Sequence[str] | None = None,
    samples: int = _SAMPLES,
    components: bool = True,
    contours: bool = True,
    traces: bool = True,
    x: str = "evaluations",
    log_evidence: float | Estimate | None = None,
    seed: int = 0,
) -> FitAxes:
    """The corner plot (`plot_corner`) with the ELBO and the number of components (`plot_trajectory`).

    Args:
        result: the result of `natmix.fit`.
        dims: the coordinates to show, at most 20, by number or name (``["mu", "theta[3]"]``; the name of an
            array means all its entries). Default: all, or, if there are more than 20, the six in which the
            drawn components differ most.
        labels: names of these coordinates. Default: the model's names, shortened, with the transformation.
        samples: how many points to draw.
        components: whether to draw components of at least 0.1% as ellipses of two standard deviations.
        contours: whether to draw contours of mixture and target above the diagonal, as `plot_corner` does.
        traces: whether to show ELBO and number of components; a result without iterations has none.
        x: the horizontal axis of the traces: "iterations", "evaluations" or "seconds".
        log_evidence: the log normaliser of the target, if known.
        seed: seed of the samples.

    Returns:
        The axes; their ``figure`` is the figure.
    """
    traces = traces and bool(result.trajectory)
    panels, layout = corner(result, dims, labels, samples, components, contours, seed, traces)
    if not traces:
        return FitAxes(panels, None, None)
    figure = figure_of(panels[0, 0])
    above, below = (figure.add_axes(r) for r in layout.trace_rectangles())
    plot_trajectory(result, x=x, log_evidence=log_evidence, axes=(above, below))
    above.tick_params(labelbottom=False)
    for ax, (_, _, width, _) in zip((above, below), layout.trace_rectangles(), strict=True):
        ax.yaxis.set_label_coords(-0.78 / (width * layout.size[0]), 0.5)
    return FitAxes(panels, above, below)
