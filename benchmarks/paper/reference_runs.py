"""natmix beside the reference implementations, by evaluations: VIPS in C++, iBayes-GMM in MATLAB, gmmvi.

Run: natmix run stm20 --algorithm sepyfux --preset paper --seeds 0:10 --max-evals 4470200 --out runs/stm20
     natmix run breast_cancer --algorithm zamtrux --preset paper --max-time 390s --out runs/breast_cancer
     python benchmarks/paper/reference_runs.py CURVES runs/stm20 runs/breast_cancer [--write results]

CURVES is a table of the reference implementations' -ELBO against evaluations. Its columns are
implementation, problem, run, evaluations, neg_elbo. The paper compares its own implementation with them in
the table tab:vips_comparisons and the figure fig:MatComparisons. All runs of a problem are read
at the same number of evaluations: the smallest of the implementations' medians.
"""

import argparse
import csv
import datetime
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from natmix.experiments.figures.learning_curves import learning_curve
from natmix.experiments.runs import load_run
from natmix.experiments.tables.formatting import table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quality"))

from case_table import commit

Curves = list[tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]]]
"""Evaluations and -ELBO of each run."""
GRID = 200
LOWEST = 0.02
"""Differences below are drawn as this one."""


def references(path: Path) -> dict[tuple[str, str], Curves]:
    """Curves by problem and implementation."""
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in csv.DictReader(path.read_text().splitlines()):
        where = row["problem"], row["implementation"], row["run"]
        points[where].append((float(row["evaluations"]), float(row["neg_elbo"])))
    found: dict[tuple[str, str], Curves] = defaultdict(list)
    for (problem, implementation, _), pairs in points.items():
        at, value = np.array(sorted(pairs)).T
        found[problem, implementation].append((at, value))
    return found


def ours(paths: Sequence[Path]) -> dict[tuple[str, str], Curves]:
    """Curves of run directories."""
    found: dict[tuple[str, str], Curves] = {}
    for path in paths:
        run = load_run(path)
        curve = learning_curve(run, "evaluations")
        found[run.problem, f"natmix {run.codename}"] = [
            (curve.x[np.isfinite(y)], y[np.isfinite(y)]) for y in curve.seeds
        ]
    return found


def at_evaluations(curves: Curves, count: float) -> Float[np.ndarray, " R"]:
    """The last -ELBO of each run up to this many evaluations."""
    places = [max(int(np.searchsorted(at, count, side="right")) - 1, 0) for at, _ in curves]
    return np.array([value[place] for place, (_, value) in zip(places, curves, strict=True)])


def last(curves: Curves) -> float:
    """The median of the runs' evaluations."""
    return float(np.median([at[-1] for at, _ in curves]))


def comparison(found: dict[tuple[str, str], Curves]) -> str:
    """A line for each problem and implementation."""
    lines = []
    for problem in dict.fromkeys(problem for problem, name in found if name.startswith("natmix")):
        own = {name: curves for (p, name), curves in found.items() if p == problem}
        common = min(last(curves) for curves in own.values())
        for name, curves in own.items():
            values = at_evaluations(curves, 1.001 * common)
            error = f" ± {3 * values.std(ddof=1) / np.sqrt(len(values)):.2f}" if len(values) > 1 else ""
            ends = np.mean([value[-1] for _, value in curves])
            row = [problem, name, str(len(values)), f"{common:,.0f}", f"{values.mean():.2f}{error}"]
            lines.append([*row, f"{ends:.2f}", f"{last(curves):,.0f}"])
    header = [
        "problem",
        "implementation",
        "runs",
        "evaluations",
        "-ELBO there",
        "-ELBO at the end",
        "evaluations",
    ]
    return table(header, lines, left=2)


def draw(found: dict[tuple[str, str], Curves], path: Path) -> None:
    """-ELBO over evaluations, less the lowest of all: the median of the runs and their range."""
    from natmix.experiments.figures.learning_curves import COLOURS
    from natmix.plot.style import DPI, pyplot, tidy

    plt = pyplot()
    plt.switch_backend("agg")
    problems = list(dict.fromkeys(problem for problem, name in found if name.startswith("natmix")))
    size = (4.6 * len(problems), 3.6)
    figure, axes = plt.subplots(1, len(problems), figsize=size, dpi=DPI, layout="constrained", squeeze=False)
    for ax, problem in zip(axes[0], problems, strict=True):
        own = sorted((name, curves) for (p, name), curves in found.items() if p == problem)
        best = min(value.min() for _, curves in own for _, value in curves)
        for (name, curves), colour in zip(own, COLOURS, strict=False):
            grid = np.geomspace(max(at[0] for at, _ in curves), last(curves), GRID)
            values = np.array([at_evaluations(curves, count) for count in grid]) - best
            values = np.maximum(values, LOWEST)
            ax.plot(grid, np.median(values, axis=1), color=colour, label=name, linewidth=1.4)
            ax.fill_between(
                grid, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2, linewidth=0
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("evaluations")
        ax.set_ylabel(f"-ELBO above the lowest, {best:.2f}")
        ax.set_title(problem, fontsize=9)
        ax.legend(fontsize=7)
        tidy(ax)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("curves", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--write", type=Path, help="folder for the table and the figure")
    options = parser.parse_args()
    found = {**references(options.curves), **ours(options.runs)}
    text = comparison(found)
    print(text)
    if options.write is not None:
        draw(found, options.write / "reference_runs.png")
        when = f"{datetime.date.today().isoformat()}, commit {commit()}."
        about = (
            "Means over the runs ± three standard errors at the same number of evaluations, and at the ends."
        )
        settings = (
            "natmix has the settings that the paper tuned for its own implementation. The C++ and one of the "
            "MATLAB rows have settings of their own. A line is level between two evaluations of the ELBO."
        )
        legend = "Lines are medians, areas the range of all runs."
        picture = "![-ELBO over evaluations](reference_runs.png)"
        parts = ["# Beside the reference implementations", when, about, settings, text, picture, legend]
        (options.write / "reference_runs.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
