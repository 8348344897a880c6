"""Learning curves: -ELBO over time or evaluations, of every seed and their mean."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from natmix.experiments.figures.base import Drawing, RunFigure, Subject
from natmix.experiments.figures.compressed_axis import compress_above
from natmix.experiments.runs import Run, SeedRun
from natmix.plot.style import COMPONENT, DENSITY, DPI, PALETTE, pyplot, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

X_LABELS = {
    "run_seconds": "seconds, without compilation",
    "seconds": "seconds, with the compilation that each seed did",
    "evaluations": "evaluations of the target",
    "iterations": "iterations",
}
COLOURS = (DENSITY, COMPONENT, *PALETTE)

_POINTS = 200
_LOG_RATIO = 30.0  # with more than this between best and worst a logarithmic axis shows more
_NEAR_ZERO = 0.1
_STEEP = 10.0
_MUCH_HIGHER = 2.0  # the start above the rest, in heights of the rest
_FEW_DECADES = 300.0  # right over left: with more, labels between the powers of ten do not fit
_THOUSANDS = 1e4
_SMALL = 1.0  # above it a logarithmic axis hides the differences that count


@dataclasses.dataclass(frozen=True)
class Curve:
    """-ELBO of the seeds of a run: at each point that of the last evaluation before it.

    Attributes:
        x: the points.
        seeds: of every seed, NaN before its first evaluation.
    """

    x: Float[np.ndarray, " P"]
    seeds: Float[np.ndarray, "S P"]

    @property
    def mean(self) -> Float[np.ndarray, " P"]:
        """Over all seeds; NaN before every seed has been evaluated."""
        return np.asarray(self.seeds.mean(0))

    @property
    def low(self) -> Float[np.ndarray, " P"]:
        """The smallest so far evaluated."""
        return np.asarray(np.nanmin(self.seeds, 0))

    @property
    def high(self) -> Float[np.ndarray, " P"]:
        """The largest so far evaluated."""
        return np.asarray(np.nanmax(self.seeds, 0))


def learning_curve(run: Run, x: str = "run_seconds") -> Curve:
    """-ELBO of every seed from the first evaluation of any of them on.

    A seed that stopped keeps its last value.
    """
    _check_x(x)
    seeds = [seed for seed in run.seeds.values() if _usable(seed, x).any()]
    if not seeds:
        raise ValueError(f"{run.path} has no evaluations of the ELBO yet: there is nothing to draw.")
    curves = [(_places(s, x)[_usable(s, x)], s.metrics["neg_elbo"][_usable(s, x)]) for s in seeds]
    first, last = min(at[0] for at, _ in curves), max(at[-1] for at, _ in curves)
    grid = np.clip(np.geomspace(first, last, _POINTS), first, last)  # in spite of rounding
    grid[0], grid[-1] = first, last
    # NaN before a seed's first evaluation.
    values = np.array([np.append(np.nan, y)[np.searchsorted(at, grid, side="right")] for at, y in curves])
    return Curve(grid, values)


def plot_learning_curves(runs: Sequence[Run], x: str = "run_seconds", ax: "Axes | None" = None) -> "Axes":
    """-ELBO of several runs on one problem, from the first evaluation on; lower is better.

    Where the start is far above the end, the axis is logarithmic above a dashed line.

    Args:
        runs: of one problem, for their -ELBO is not comparable otherwise.
        x: what to plot over: "run_seconds" (without compilation), "seconds", "evaluations" or "iterations".
        ax: where to draw; a new figure if left out.

    Returns:
        The axes: a thin line for every seed, and a thick one for the mean of a run's seeds.
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
        alone = len(curve.seeds) == 1
        for seed in () if alone else curve.seeds:
            ax.plot(curve.x, seed, color=colour, linewidth=0.6, alpha=0.55, linestyle=style)
        ax.plot(curve.x, curve.mean, color=colour, linewidth=1.6, linestyle=style, label=label)
    ax.set(xscale="log", xlabel=X_LABELS[x], ylabel="-ELBO")
    _scale_y(ax, curves)
    ax.set_title(problems[0], fontsize=10, loc="left")
    ax.grid(color="#e8ecf1", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8)
    tidy(ax)
    plain_numbers(ax)
    return ax


def plot_comparison(runs: Sequence[Run]) -> "Figure":
    """Learning curves over time and over evaluations, one row of panels per problem."""
    problems = list(dict.fromkeys(run.problem for run in runs))
    figure, axes = pyplot().subplots(
        len(problems), 2, figsize=(10, 3.8 * len(problems)), dpi=DPI, layout="constrained", squeeze=False
    )
    for row, problem in zip(axes, problems, strict=True):
        here = [run for run in runs if run.problem == problem]
        for ax, x in zip(row, ("run_seconds", "evaluations"), strict=True):
            plot_learning_curves(here, x, ax)
        row[0].get_legend().remove()
    return figure


def run_labels(runs: Sequence[Run]) -> list[str]:
    """Codenames, with the directory's name or path where codenames do not distinguish the runs."""
    labels = [run.codename for run in runs]
    for more in (lambda run: run.path.name, lambda run: str(run.path)):
        labels = [
            f"{run.codename} ({more(run)})" if labels.count(label) > 1 else label
            for label, run in zip(labels, runs, strict=True)
        ]
    return labels


def plain_numbers(ax: "Axes") -> None:
    """50, 100, 200, 20k on a logarithmic x axis, rather than powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    left, right = ax.get_xlim()
    subs = (1, 2, 5) if right < _FEW_DECADES * left else (1,)
    ax.xaxis.set_major_locator(LogLocator(subs=subs))
    ax.xaxis.set_major_formatter(FuncFormatter(_plain))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _plain(value: float, position: int | None = None) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size and (letter != "k" or value >= _THOUSANDS):
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _places(seed: SeedRun, x: str) -> np.ndarray:
    """Where on the axis the evaluations of a seed are."""
    if x == "run_seconds":
        return np.asarray(seed.metrics["seconds"], float) - np.asarray(seed.metrics["compile_seconds"], float)
    return np.asarray(seed.metrics[x], float)


def _usable(seed: SeedRun, x: str) -> np.ndarray:
    """Evaluations with a finite -ELBO, at a positive place if the axis is logarithmic."""
    return np.isfinite(seed.metrics["neg_elbo"]) & (_places(seed, x) > 0)


def _scale_y(ax: "Axes", curves: Sequence[Curve]) -> None:
    """Show the end of every curve in full; a steep start is compressed."""
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
    steep = highest > top + _MUCH_HIGHER * (top - lowest)
    top = top if steep else highest
    margin = 0.06 * max(top - lowest, 1e-3 * max(abs(lowest), 1.0))
    if steep:
        compress_above(ax, lowest - margin, top + margin, highest)
    else:
        ax.set_ylim(lowest - margin, top + margin)


def _check_x(x: str) -> None:
    if x not in X_LABELS:
        raise ValueError(f"x must be one of {', '.join(X_LABELS)}, got {x!r}.")


def _draw(subject: Subject) -> Drawing:
    return Drawing(plot_comparison([subject.run]), of_all_seeds=True)


LEARNING_CURVES = RunFigure("learning_curves", _draw)
