"""Run all methods on all problems, and write the table.

Run: python benchmarks/quality/posteriors [--only NAME ...] [--seeds 0 1 2] [--limit N] [--write results]
"""

import argparse
import csv
import time
from pathlib import Path

import jax

from natmix.kernels.compilation_cache import use_compilation_cache
from posteriors import normal, ours, paths
from posteriors.catalogue import PROBLEMS
from posteriors.outcome import Outcome
from posteriors.problem import Problem, Truth
from posteriors.row import FIELDS, Row, exact_rows, rows_of
from posteriors.table import markdown

OTHERS = {"normal": normal.run, "pathfinder": paths.run}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python benchmarks/quality/posteriors", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS), metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--limit", type=int, default=0, help="evaluations natmix may make in a fit (0: as many as it wants)"
    )
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write posteriors.csv and posteriors.md")
    parser.add_argument(
        "--only-table", type=Path, metavar="FOLDER", help="write posteriors.md from the rows there"
    )
    parser.add_argument(
        "--budget", type=int, default=0, help="run the others alone, with so many evaluations"
    )
    parser.add_argument("--others", nargs="*", choices=list(OTHERS), default=list(OTHERS))
    parser.add_argument("--adam", type=float, default=normal.FASTEST, help="Adam's first stepsize")
    parser.add_argument(
        "--ftol", type=float, default=paths.FTOL, help="Pathfinder's L-BFGS runs end at so small a rise"
    )
    parser.add_argument(
        "--lbfgs-steps", type=int, default=paths.STEPS, help="steps of Pathfinder's L-BFGS runs at most"
    )
    options = parser.parse_args()
    normal.FASTEST, paths.FTOL, paths.STEPS = options.adam, options.ftol, options.lbfgs_steps
    jax.config.update("jax_enable_x64", True)
    use_compilation_cache()
    for name in options.only:
        problem = PROBLEMS[name]()
        started = time.perf_counter()
        truth = problem.truth(problem)
        print(f"\n{problem.title}: {truth.source} ({time.perf_counter() - started:.0f} s)", flush=True)
        for seed in [] if options.only_table else options.seeds:
            found = _seed(problem, truth, seed, options.limit, options.budget, options.others)
            if options.write is not None:
                _write(options.write, name, found, truth)
        if options.only_table:
            _write(options.only_table, name, [], truth)
    return 0


def _seed(problem: Problem, truth: Truth, seed: int, limit: int, budget: int, others: list[str]) -> list[Row]:
    """natmix first: its evaluations are what the others get."""
    found: list[Row] = [] if limit else exact_rows(problem, truth, seed)

    def keep(outcome: Outcome) -> None:
        new = rows_of(problem, truth, seed, limit, outcome)
        found.extend(new)
        for row in new:
            print("  " + row.line(), flush=True)

    if not budget:
        first = ours.run(problem, seed, limit or None)
        keep(first)
        budget = first.evaluations
    for name in others:
        keep(OTHERS[name](problem, seed, budget))
    return found


def _write(folder: Path, name: str, found: list[Row], truth: Truth) -> None:
    """Replace the same rows of the file, and write the problem's table anew."""
    path = folder / "posteriors.csv"
    kept: list[Row] = []
    if path.is_file():
        with path.open(newline="") as file:
            kept = [Row.read(line) for line in csv.DictReader(file)]
    rows = {row.key: row for row in kept + found}
    order = list(PROBLEMS)
    every = sorted(rows.values(), key=lambda row: (order.index(row.problem), row.limit))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(row.written() for row in every)
    sources = folder / "posteriors.md"
    sources.write_text(markdown(every, sources.read_text() if sources.is_file() else "", name, truth))
