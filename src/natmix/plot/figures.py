"""Which figures a fit has: one file per figure, found by name."""

import dataclasses
from collections.abc import Callable
from typing import Any

from natmix.plot.components_2d import plot_components_2d
from natmix.plot.corner import plot_corner
from natmix.plot.fit import plot_fit
from natmix.plot.fit_2d import plot_fit_2d
from natmix.plot.marginals import plot_marginals
from natmix.plot.overview import plot_overview
from natmix.plot.trajectory import plot_trajectory
from natmix.registry import add_entry, registry_of
from natmix.result.result import Result
from natmix.text.suggestions import meant


@dataclasses.dataclass(frozen=True)
class FitFigure:
    """A figure of a fit.

    Attributes:
        name: as in ``draw(result, name)``.
        plot: draws it from a `natmix.Result` and options by keyword, and returns its axes.
    """

    name: str
    plot: Callable[..., Any]


def _of_mixture(plot: Callable[..., Any]) -> Callable[..., Any]:
    """A figure of the mixture alone."""
    return lambda result, **options: plot(result.mixture, **options)


FIGURES: dict[str, FitFigure] = registry_of(
    "figure of a fit",
    (
        FitFigure("fit", plot_fit),
        FitFigure("corner", plot_corner),
        FitFigure("marginals", _of_mixture(plot_marginals)),
        FitFigure("trajectory", plot_trajectory),
        FitFigure("fit_2d", plot_fit_2d),
        FitFigure("components_2d", _of_mixture(plot_components_2d)),
        FitFigure("overview", plot_overview),
    ),
    lambda figure: figure.name,
)
"""What ``draw(result, name)`` accepts."""


def register(figure: FitFigure) -> FitFigure:
    """Make a figure known by its `name`.

    Raises:
        ValueError: another figure has this name.
    """
    add_entry(FIGURES, "figure of a fit", figure.name, figure)
    return figure


def draw(result: Result, figure: str = "fit", **options: Any) -> Any:
    """Draw one of the registered figures and return its axes.

    Args:
        result: the result of `natmix.fit`.
        figure: its name, one of `FIGURES`.
        options: options of the figure, such as those of `plot_corner` for ``"corner"``.

    Raises:
        ValueError: there is no such figure.
    """
    if not isinstance(figure, str) or figure not in FIGURES:
        raise ValueError(
            f"figure must be one of {', '.join(map(repr, FIGURES))}, got {figure!r}.{meant(figure, FIGURES)}"
        )
    return FIGURES[figure].plot(result, **options)
