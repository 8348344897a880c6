"""Figures of a study: the best of each option, parallel coordinates, learning curves."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.experiments.runs.directory import SeedFiles
from natmix.experiments.runs.rows import read_evaluations
from natmix.experiments.studies.definition import CellKey
from natmix.experiments.studies.domains import Choice
from natmix.experiments.studies.settings_source import SettingResult, axes
from natmix.experiments.studies.study_results import OptionBest, StudyResults
from natmix.plot.style import COMPONENT, DENSITY, DPI, GRID, INK, KNOWN, PALETTE, pyplot, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FEW = 8
"""Curves of so many candidates have a name and a colour; the rest are grey."""
_WORST_SHOWN = 0.9
"""Values beyond this quantile are drawn at the edge."""


def objective_name(results: StudyResults) -> str:
    """What the values are, for labels."""
    return {"neg_elbo": "-ELBO", "best_neg_elbo": "best -ELBO"}.get(
        results.study.objective.metric, results.study.objective.metric
    )


def best_per_option(results: StudyResults) -> "Figure":
    """For each problem and option the best value with two standard errors, and each candidate's best."""
    found = results.options()
    if not any(each.value is not None for each in found):
        raise ValueError("No complete settings of candidates that differ in a module: nothing to compare.")
    problems = list(results.study.problems)
    rows = [(o.module, o.letter, o.title) for o in found if o.problem == problems[0]]
    size = (1.6 + 2.6 * len(problems), 1.2 + 0.32 * len(rows))
    figure, grid = pyplot().subplots(
        1, len(problems), figsize=size, dpi=DPI, layout="constrained", sharey=True, squeeze=False
    )
    for ax, problem in zip(grid[0], problems, strict=True):
        _draw_options(ax, [each for each in found if each.problem == problem], rows)
        ax.set_title(problem, fontsize=9, color=INK)
        ax.set_xlabel(objective_name(results), fontsize=8)
        tidy(ax)
    grid[0][0].set_yticks(range(len(rows)), [f"{title} ({letter})" for _, letter, title in rows], fontsize=8)
    grid[0][0].set_ylim(len(rows) - 0.5, -0.5)
    return figure


def _draw_options(ax: "Axes", found: Sequence[OptionBest], rows: Sequence[tuple[str, str, str]]) -> None:
    every = [value for each in found for value in each.others]
    edge = float(np.quantile(every, _WORST_SHOWN)) if every else 1.0
    best = min(every, default=0.0)
    edge = edge if edge > best else best + max(1e-3, abs(best) * 1e-3)
    for each in found:
        place = rows.index((each.module, each.letter, each.title))
        inside = [min(value, edge) for value in each.others]
        ax.plot(inside, [place] * len(inside), "|", color=KNOWN, alpha=0.6, markersize=7)
        if each.value is not None:
            error = 2 * each.error if math.isfinite(each.error) else 0.0
            ax.errorbar(
                min(each.value, edge), place, xerr=error, fmt="o", color=DENSITY, markersize=5, capsize=2
            )
    modules = [row[0] for row in rows]
    for i in range(1, len(modules)):
        if modules[i] != modules[i - 1]:
            ax.axhline(i - 0.5, color=GRID, linewidth=1)
    beyond = sum(value > edge for value in every)
    if beyond:
        ax.annotate(
            f"{beyond} beyond",
            (1, 1),
            xycoords="axes fraction",
            ha="right",
            va="bottom",
            fontsize=6,
            color=KNOWN,
        )


def parallel_coordinates(results: StudyResults, cell: CellKey) -> "Figure":
    """Each complete setting of a codename on a problem as a line through what was searched."""
    found = next(each for each in results.cells if each.cell == cell)
    done = [result for result in found.results if result.value is not None]
    names = [name for name, _ in axes(results.study.spaces[cell]) if not name.startswith("together")]
    joint = dict.fromkeys(
        n for group in results.study.spaces[cell].together for choice in group for n in choice
    )
    names += [name for name in joint if len({str(result.settings[name]) for result in done}) > 1]
    if len(done) < 2 or not names:
        raise ValueError(f"{cell} has not yet two complete settings of something that was searched.")
    done.sort(key=lambda result: -results.sign * (result.value or 0.0))
    figure, ax = pyplot().subplots(figsize=(1.5 + 1.3 * (len(names) + 1), 3.6), dpi=DPI, layout="constrained")
    columns = [_scaled(results, cell, name, [r.settings.get(name) for r in done]) for name in names]
    ranks = np.linspace(1, 0, len(done)) if results.sign > 0 else np.linspace(0, 1, len(done))
    for i, result in enumerate(done):
        last = i == len(done) - 1
        line = [column[0][i] for column in columns] + [
            float(1 - ranks[i]) if results.sign < 0 else float(ranks[i])
        ]
        shade = 0.15 + 0.6 * i / max(1, len(done) - 1)
        ax.plot(
            range(len(line)),
            line,
            color=COMPONENT if last else DENSITY,
            alpha=1.0 if last else shade,
            linewidth=2.2 if last else 1.0,
            zorder=3 if last else 2,
        )
        del result
    for place, (_, low, high) in enumerate(columns):
        ax.axvline(place, color=GRID, zorder=1)
        ax.annotate(low, (place, -0.02), ha="center", va="top", fontsize=7, color=KNOWN)
        ax.annotate(high, (place, 1.02), ha="center", va="bottom", fontsize=7, color=KNOWN)
    end = len(columns)
    ax.axvline(end, color=GRID, zorder=1)
    ax.annotate(
        f"best {done[-1].value:.4g}", (end, -0.02), ha="center", va="top", fontsize=7, color=COMPONENT
    )
    ax.annotate(f"worst {done[0].value:.4g}", (end, 1.02), ha="center", va="bottom", fontsize=7, color=KNOWN)
    ax.set_xticks(
        range(end + 1), [*(n.replace(".", "\n") for n in names), f"rank by\n{objective_name(results)}"]
    )
    ax.tick_params(axis="x", labelsize=7, length=0, pad=14)
    ax.set_yticks([])
    ax.set_ylim(-0.08, 1.1)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_title(f"{cell.codename} on {cell.problem}: {len(done)} settings", fontsize=9, color=INK)
    return figure


def _scaled(
    results: StudyResults, cell: CellKey, name: str, values: Sequence[Any]
) -> tuple[list[float], str, str]:
    """Values between 0 and 1, and what 0 and 1 are."""
    domain = results.study.spaces[cell].free.get(name)
    if domain is None or isinstance(domain, Choice):
        known = sorted({str(v) for v in values}, key=lambda v: (_number(v), v))
        if domain is not None:
            known = [str(v) for v in domain.values]
        most = max(1, len(known) - 1)
        return [known.index(str(v)) / most for v in values], known[0], known[-1]
    scale = math.log if domain.log else float
    low, high = scale(domain.low), scale(domain.high)
    return [(scale(v) - low) / (high - low) for v in values], f"{domain.low:g}", f"{domain.high:g}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf


def learning_curves_of(results: StudyResults, problem: str) -> "Figure":
    """-ELBO over evaluations of the best setting of each candidate on a problem, over its seeds."""
    bests = [
        (cell.cell, found[1])
        for cell in results.cells
        if cell.cell.problem == problem and (found := results.best(problem, cell.cell.codename)) is not None
    ]
    if not bests:
        raise ValueError(f"No setting on {problem} is complete yet.")
    bests.sort(key=lambda each: results.sign * (each[1].value or 0.0))
    figure, ax = pyplot().subplots(figsize=(6, 4), dpi=DPI, layout="constrained")
    drawn = []
    for i, (cell, result) in enumerate(bests):
        colour = PALETTE[i % len(PALETTE)] if i < _FEW else GRID
        for k, (x, y) in enumerate(_curves(results, cell, result)):
            label = f"{cell.codename} {result.value:.4g}" if k == 0 and i < _FEW else None
            ax.plot(
                x,
                y,
                color=colour,
                linewidth=1.4,
                label=label,
                marker=".",
                markersize=3,
                zorder=3 if i < _FEW else 2,
            )
            drawn.append(y)
    if not drawn:
        pyplot().close(figure)
        raise ValueError(f"The run directories of the trials on {problem} have no evaluations of the ELBO.")
    values = np.concatenate(drawn)
    finite = values[np.isfinite(values)]
    if finite.size and finite.min() > 0 and finite.max() > 30 * finite.min():
        ax.set_yscale("log")
    ax.set_xscale("log")
    ax.set_xlabel("evaluations of the target", fontsize=8)
    ax.set_ylabel("-ELBO", fontsize=8)
    ax.set_title(f"{problem}: the best setting of each candidate", fontsize=9, color=INK)
    tidy(ax)
    ax.legend(fontsize=7, frameon=False)
    return figure


def _curves(
    results: StudyResults, cell: CellKey, result: SettingResult
) -> list[tuple[np.ndarray, np.ndarray]]:
    found = []
    for folder, seed, outcome in results.trials(cell, result):
        rows = read_evaluations(SeedFiles(folder.run_folder(outcome.number), seed).metrics)
        if rows:
            found.append(
                (np.array([row["evaluations"] for row in rows]), np.array([row["neg_elbo"] for row in rows]))
            )
    return found


def draw_all(results: StudyResults, out: Path) -> tuple[list[Path], list[str]]:
    """Draw all figures that are possible; returns their files, and why others are not."""
    out.mkdir(parents=True, exist_ok=True)
    plans: list[tuple[str, Any]] = [("options", lambda: best_per_option(results))]
    for problem in results.study.problems:
        plans.append((f"curves-{problem}", lambda problem=problem: learning_curves_of(results, problem)))
        best = results.best(problem)
        if best is not None:
            plans.append((f"settings-{best[0]}", lambda cell=best[0]: parallel_coordinates(results, cell)))
    written, missing = [], []
    for name, draw in plans:
        try:
            figure = draw()
        except ValueError as error:
            missing.append(f"{name}.png: {error}")
            continue
        figure.savefig(out / f"{name}.png")
        pyplot().close(figure)
        written.append(out / f"{name}.png")
    return written, missing
