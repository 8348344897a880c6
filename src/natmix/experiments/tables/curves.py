"""Learning curves of all problems in one figure, as differences from the paper's number."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from natmix.experiments.figures.learning_curves import COLOURS, X_LABELS, Curve, learning_curve, plain_numbers
from natmix.experiments.problems import PAPER
from natmix.experiments.runs import Run
from natmix.experiments.tables import formatting
from natmix.experiments.tables.collection import Collection
from natmix.experiments.tables.paper import MAIN, PaperNumber, paper_number
from natmix.experiments.tables.saved_tables import SavedSeed
from natmix.plot.style import DPI, GRID, INK, KNOWN, name_axes, pyplot, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 4
_NARROWEST = 5.0  # inches
_FEW = 4  # candidates, whose own paper's numbers are shown too
_CURVE = 2  # evaluations; a table may have kept only the last one
_LINEAR = 0.1
_LEADER = "SAMTRON"


def has_curves(collection: Collection, candidates: Sequence[str]) -> bool:
    """Whether any of these runs has a learning curve on a problem of the table."""
    return any(_usable(collection, c, p) for c in candidates for p in PAPER)


def plot_curves(collection: Collection, candidates: Sequence[str]) -> "Figure":
    """A panel per problem: -ELBO minus the paper's for SAMTRON, over time, mean and range over the seeds."""
    problems = [p for p in PAPER if any(_usable(collection, c, p) for c in candidates)]
    columns = min(_COLUMNS, len(problems))
    rows = math.ceil(len(problems) / columns)
    figure, axes = pyplot().subplots(
        rows,
        columns,
        figsize=(max(3.7 * columns, _NARROWEST), 2.9 * rows + 0.5),
        dpi=DPI,
        layout="constrained",
        squeeze=False,
    )
    colours = dict(zip(dict.fromkeys((*MAIN, *candidates)), (*COLOURS, INK), strict=False))
    for ax, problem in zip(axes.flat, problems, strict=False):
        runs = {c: run for c in candidates if (run := _usable(collection, c, problem)) is not None}
        _panel(ax, problem, runs, colours, own_numbers=len(candidates) <= _FEW)
    shown = [c for c in candidates if any(_usable(collection, c, p) for p in problems)]
    for ax in axes[:, 0]:
        ax.set_ylabel("-ELBO, from the paper's for SAMTRON", color=INK, fontsize=8)
    for number, ax in enumerate(axes.flat):
        if number >= len(problems) - columns:
            ax.set_xlabel(X_LABELS["run_seconds"], color=INK, fontsize=8)
        if number >= len(problems):
            ax.axis("off")
    _legend(figure, axes.flat[-1] if len(problems) < axes.size else None, shown, colours)
    return figure


def _usable(collection: Collection, codename: str, problem: str) -> Run | None:
    """The finished seeds of a run, if the learning curves of all of them are known."""
    run = collection.runs.get((codename, problem))
    if run is None or not run.finished:
        return None
    if any(isinstance(s, SavedSeed) and len(s.metrics["iterations"]) < _CURVE for s in run.finished.values()):
        return None
    if not any(np.isfinite(s.metrics["neg_elbo"]).any() for s in run.finished.values()):
        return None
    return Run(run.path, run.config, run.environment, run.finished)


def _panel(
    ax: "Axes", problem: str, runs: dict[str, Run], colours: dict[str, str], own_numbers: bool
) -> None:
    paper = paper_number(_LEADER, problem)
    assert paper is not None
    linear = 10.0 ** math.ceil(math.log10(max(_LINEAR, paper.three_se)))
    ax.set_yscale("symlog", linthresh=linear, linscale=0.8)
    ax.set_xscale("log")
    ax.axhspan(-paper.three_se, paper.three_se, color=KNOWN, alpha=0.22, linewidth=0)
    ax.axhline(0, color=KNOWN, linewidth=1)
    curves = {c: learning_curve(run) for c, run in runs.items()}
    for codename, curve in curves.items():
        colour = colours[codename]
        ax.fill_between(
            curve.x, curve.low - paper.mean, curve.high - paper.mean, color=colour, alpha=0.2, linewidth=0
        )
        ax.plot(curve.x, curve.mean - paper.mean, color=colour, linewidth=1.5)
        own = paper_number(codename, problem)
        if own_numbers and codename != _LEADER and own is not None:
            ax.axhline(own.mean - paper.mean, color=colour, linewidth=0.9, linestyle=":")
    _limit(ax, list(curves.values()), paper, linear)
    plain_numbers(ax)
    name_axes(ax, f"{problem}  ({formatting.theirs(paper)})")
    ax.title.set_fontsize(9)
    ax.grid(color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    tidy(ax)


def _limit(ax: "Axes", curves: Sequence[Curve], paper: PaperNumber, linear: float) -> None:
    """Limits that show the linear part and the best curve in full, and at most three decades of the start."""
    lowest = min(float(np.nanmin(curve.low)) for curve in curves) - paper.mean
    highest = max(float(np.nanmax(curve.high[np.isfinite(curve.high)], initial=0)) for curve in curves)
    top = min(1.5 * max(highest - paper.mean, linear), 1e3 * linear)
    ax.set_ylim(min(1.4 * lowest, -linear), max(top, 2 * linear))
    in_sight = [float(c.x[np.argmax(c.low - paper.mean <= top)]) for c in curves]
    ax.set_xlim(left=min(in_sight) / 1.3)


def _legend(figure: "Figure", ax: "Axes | None", candidates: Sequence[str], colours: dict[str, str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lines = [Line2D([], [], color=colours[c], linewidth=1.5, label=c) for c in candidates]
    handles = [
        *lines,
        Patch(color=KNOWN, alpha=0.4, label="the paper's SAMTRON ± 3 s.e."),
        Patch(color=INK, alpha=0.15, label="smallest to largest over the seeds"),
    ]
    if 1 < len(candidates) <= _FEW:
        handles.append(Line2D([], [], color=INK, linewidth=0.9, linestyle=":", label="the paper's others"))
    style = {"frameon": False, "fontsize": 8, "labelcolor": INK}
    if ax is not None:
        ax.legend(handles=handles, loc="center left", **style)
    else:
        ncols = min(_COLUMNS, 2 * len(figure.axes))
        figure.legend(handles=handles, loc="outside lower center", ncols=ncols, **style)
