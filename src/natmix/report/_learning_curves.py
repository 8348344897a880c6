"""How fast runs learn: -ELBO over time or evaluations, mean and range over the seeds."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from natmix.report._style import DPI, pyplot, tidy
from natmix.runs import Run, SeedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

X_LABELS = {
    "seconds": "seconds, with compilation",
    "evaluations": "evaluations of the target",
    "iterations": "iterations",
}
COLOURS = ("#1f5f99", "#e4622b", "#2f8f5b", "#8a4fa3", "#b8860b", "#c2416b", "#4a9aa8", "#5f6b7a")

_POINTS = 200
_LOG_RATIO = 30.0  # with more than this between best and worst a logarithmic axis shows more
_NEAR_ZERO = 0.1
_STEEP = 10.0
_SMALL = 1.0  # above it a logarithmic axis hides the differences that count


@dataclasses.dataclass(frozen=True)
class Curve:
    """-ELBO of the seeds of a run: at each place what the last look before it found."""

    x: Float[np.ndarray, " P"]
    mean: Float[np.ndarray, " P"]
    low: Float[np.ndarray, " P"]
    high: Float[np.ndarray, " P"]


def learning_curve(run: Run, x: str = "seconds") -> Curve:
    """Mean, smallest and largest -ELBO over the seeds.

    The curve begins where every seed has been looked at; a seed that stopped keeps its last value.
    """
    _check_x(x)
    seeds = [seed for seed in run.seeds.values() if _usable(seed, x).any()]
    if not seeds:
        raise ValueError(f"{run.path} has no looks at the ELBO yet; there is nothing to draw.")
    looks = [
        (np.asarray(s.metrics[x], float)[_usable(s, x)], s.metrics["neg_elbo"][_usable(s, x)]) for s in seeds
    ]
    first, last = max(at[0] for at, _ in looks), max(at[-1] for at, _ in looks)
    grid = np.geomspace(first, max(last, first), _POINTS)
    grid[0], grid[-1] = first, max(last, first)
    values = np.array([y[np.searchsorted(at, grid, side="right") - 1] for at, y in looks])
    return Curve(grid, values.mean(0), values.min(0), values.max(0))


def plot_learning_curves(runs: Sequence[Run], x: str = "seconds", ax: "Axes | None" = None) -> "Axes":
    """-ELBO of several runs on one problem; lower is better.

    Args:
        runs: of one problem, for their -ELBO is not comparable otherwise.
        x: what to plot over: "seconds", "evaluations" or "iterations".
        ax: where to draw; a new figure if left out.

    Returns:
        The axes: a line per run for the mean over its seeds, shaded between the smallest and largest.
    """
    _check_x(x)
    if not runs:
        raise ValueError("There are no runs to draw.")
    problems = sorted({run.problem for run in runs})
    if len(problems) > 1:
        raise ValueError(f"Learning curves of different problems cannot be compared: {', '.join(problems)}.")
    if ax is None:
        ax = pyplot().subplots(figsize=(5.4, 3.8), dpi=DPI, layout="constrained")[1]
    curves = [learning_curve(run, x) for run in runs]
    for number, (curve, label) in enumerate(zip(curves, run_labels(runs), strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        style = ("-", "--", ":", "-.")[number // len(COLOURS) % 4]
        ax.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
        ax.plot(curve.x, curve.mean, color=colour, linewidth=1.6, linestyle=style, label=label)
    ax.set(xscale="log", xlabel=X_LABELS[x], ylabel="-ELBO")
    _scale_y(ax, curves)
    ax.set_title(problems[0], fontsize=10, loc="left")
    ax.grid(color="#e8ecf1", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.legend(loc="upper right", frameon=False, fontsize=8)
    tidy(ax)
    return ax


def plot_comparison(runs: Sequence[Run]) -> "Figure":
    """A row of pictures per problem: learning curves over time and over evaluations."""
    problems = list(dict.fromkeys(run.problem for run in runs))
    figure, axes = pyplot().subplots(
        len(problems), 2, figsize=(10, 3.8 * len(problems)), dpi=DPI, layout="constrained", squeeze=False
    )
    for row, problem in zip(axes, problems, strict=True):
        here = [run for run in runs if run.problem == problem]
        for ax, x in zip(row, ("seconds", "evaluations"), strict=True):
            plot_learning_curves(here, x, ax)
        row[1].get_legend().remove()
    return figure


def run_labels(runs: Sequence[Run]) -> list[str]:
    """Codenames; with the name of the directory where they alone do not tell the runs apart."""
    codenames = [run.codename for run in runs]
    return [
        f"{codename} ({run.path.name})" if codenames.count(codename) > 1 else codename
        for codename, run in zip(codenames, runs, strict=True)
    ]


def _usable(seed: SeedRun, x: str) -> np.ndarray:
    """Looks with a finite -ELBO, at a place a logarithmic axis has."""
    return np.isfinite(seed.metrics["neg_elbo"]) & (np.asarray(seed.metrics[x]) > 0)


def _scale_y(ax: "Axes", curves: Sequence[Curve]) -> None:
    """Show the end of every curve in full; the steep beginning may leave the picture."""
    lowest = min(curve.low.min() for curve in curves)
    highest = max(curve.high.max() for curve in curves)
    if -_NEAR_ZERO < lowest < _SMALL and highest > _LOG_RATIO * max(lowest, _NEAR_ZERO):
        if lowest > 0:
            ax.set_yscale("log")
        else:  # a normalised target, whose best -ELBO is 0 up to noise
            ax.set_yscale("symlog", linthresh=_NEAR_ZERO)
        return
    # From the middle of the (logarithmic) axis on, or later while what remains is still steep.
    start = _POINTS // 2
    top = max(curve.high[start:].max() for curve in curves)
    while start < _POINTS - 1 and top - lowest > _STEEP * max(abs(lowest), _SMALL):
        start = (start + _POINTS) // 2
        top = max(curve.high[start:].max() for curve in curves)
    margin = 0.06 * max(top - lowest, 1e-3 * max(abs(lowest), 1.0))
    ax.set_ylim(lowest - margin, top + margin)


def _check_x(x: str) -> None:
    if x not in X_LABELS:
        raise ValueError(f"x must be one of {', '.join(X_LABELS)}, got {x!r}.")
