"""Read what the workers have written."""

import functools
import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

from natmix.experiments import problems
from side_by_side.rows import ROWS, Row

Run = dict[str, Any]
"""One run: budget, import_seconds, peak_mib, marks, checkpoints (see `record`); -ELBOs of these (`judge`)."""


class Seed(NamedTuple):
    """Runs of one row and seed.

    Attributes:
        ours: of natmix.
        theirs: of the reference, by target and setting of its allocator, as in `VARIANTS`.
        least: no -ELBO lies below this, where the evidence is known exactly; estimates may.
    """

    ours: list[Run]
    theirs: dict[str, Run]
    least: float = -math.inf


ALLOCATORS = {"default": {}, "mmap0": {"MALLOC_MMAP_MAX_": "0"}}
VARIANTS = {
    "theirs-shipped-default": "shipped target",
    "theirs-shipped-mmap0": "shipped target, MALLOC_MMAP_MAX_=0",
    "theirs-own-default": "fast target",
    "theirs-own-mmap0": "fast target, MALLOC_MMAP_MAX_=0",
}


def is_complete(path: Path, budget: float) -> bool:
    """Whether there is a run of so many seconds, with its -ELBOs."""
    found = read(path)
    return found is not None and found["budget"] == budget


def read(path: Path) -> Run | None:
    """A run with its -ELBOs, None if there is none."""
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    return found if "judged" in found else None


def rows(out: Path) -> dict[Row, list[Seed]]:
    """Every row of which both sides are there, with its seeds."""
    found: dict[Row, list[Seed]] = {}
    for row in ROWS:
        pattern = re.compile(rf"{re.escape(row.name)}-seed(\d+)")
        directories = [d for d in out.glob(f"{row.name}-seed*") if pattern.fullmatch(d.name)]
        for directory in sorted(directories, key=lambda d: int(pattern.fullmatch(d.name)[1])):
            ours = _longest([run for path in sorted(directory.glob("ours-*.json")) if (run := read(path))])
            theirs = {
                name: run
                for stem, name in VARIANTS.items()
                if stem.split("-")[1] in row.targets and (run := read(directory / f"{stem}.json"))
            }
            if ours and theirs:
                found.setdefault(row, []).append(Seed(ours, theirs, _least(row.problem)))
    return found


@functools.cache
def _least(name: str) -> float:
    """Minus the log evidence of a problem, -inf if it is not known exactly."""
    problem = problems.load(name)
    known = problem.log_evidence is not None and problem.log_evidence_se == 0
    return -problem.log_evidence if known else -math.inf


def _longest(runs: list[Run]) -> list[Run]:
    """Those that had the most seconds: others are of an earlier bench."""
    return [run for run in runs if run["budget"] == max(r["budget"] for r in runs)]


def described(found: dict[Row, list[Seed]]) -> str:
    """Machine and versions, in a line."""
    seeds = [seed for of_row in found.values() for seed in of_row]
    ours = [run for seed in seeds for run in seed.ours]
    theirs = [run for seed in seeds for run in seed.theirs.values()]
    machines = {f"{r['machine']['cpus']} cores of {r['machine']['cpu']}" for r in ours + theirs}
    packages: dict[str, set[str]] = {}
    for run in ours + theirs:
        for package, version in run["versions"].items():
            if package != "numpy":
                packages.setdefault(package, set()).add(version)
    load = max(run["machine"]["load"] for run in ours + theirs)
    names = [f"{package} {'/'.join(sorted(v))}" for package, v in packages.items()]
    return (
        f"{' and '.join(sorted(machines))}; {', '.join(names)}. Highest load average at an end: {load:.1f}."
    )
