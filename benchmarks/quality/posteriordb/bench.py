"""natmix with its defaults and Stan's NUTS on posteriordb, against its reference draws.

Run: python benchmarks/quality/posteriordb DATABASE [--only NAME ...] [--seeds 0 1 2] [--write results]

DATABASE is a clone of https://github.com/stan-dev/posteriordb. Every row is appended to posteriordb.csv as it
comes, and rows that are there are not measured again unless they failed: started anew, the benchmark goes on
where it was.
"""

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from posteriordb import database
from posteriordb.row import PURPOSES, Row, append, read
from posteriordb.table import markdown

NATMIX, NUTS = "natmix", "NUTS"
HALVES = ("table", "development", "other", "all")
_HERE = Path(__file__).resolve().parent
_REPOSITORY = _HERE.parents[2]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python benchmarks/quality/posteriordb", description=__doc__)
    parser.add_argument("database", type=Path, metavar="DATABASE", help="a clone of stan-dev/posteriordb")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="posteriors by name, or by a part of it")
    parser.add_argument(
        "--half",
        choices=HALVES,
        default="table",
        help="the 18 posteriors of the table; or of all with reference draws the half that settings may be "
        "chosen on (development, starred in the table), the other half, or all",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--limit", type=int, default=0, help="evaluations natmix may make (0: as it wants)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--natmix-only", action="store_true")
    which.add_argument("--nuts-only", action="store_true")
    which.add_argument("--only-table", action="store_true", help="write posteriordb.md from the rows there")
    parser.add_argument("--write", type=Path, default=Path("results"), metavar="FOLDER")
    parser.add_argument(
        "--timeout", type=float, default=3600, help="seconds that one run may take, with compiling"
    )
    options = parser.parse_args()
    root = database.root(options.database)
    names = _chosen(root, options.half, options.only)
    path = options.write / "posteriordb.csv"
    methods = [NATMIX] * (not options.nuts_only) + [NUTS] * (not options.natmix_only)
    for name in [] if options.only_table else names:
        for method in methods:
            for seed in options.seeds:
                limit = options.limit if method == NATMIX else 0
                if (name, method, seed, limit) in {row.key for row in read(path) if not row.failed}:
                    continue
                row = _measured(options.database, name, method, seed, limit, options.timeout)
                append(path, row)
                print(row.line(), flush=True)
                _write(options.write, root, path)
    _write(options.write, root, path)
    return 0


def _chosen(root: Path, half: str, only: list[str] | None) -> list[str]:
    everything = database.with_reference(root)
    if only:
        found = [name for part in only for name in _matching(part, everything)]
        return list(dict.fromkeys(found))
    development = database.development(root)
    chosen = {
        "table": list(database.DEFAULT),
        "development": development,
        "other": [name for name in everything if name not in development],
        "all": everything,
    }
    return chosen[half]


def _matching(part: str, names: list[str]) -> list[str]:
    found = [name for name in names if name == part] or [name for name in names if part in name]
    if not found:
        raise SystemExit(f"posteriordb has no posterior with reference draws whose name holds {part!r}.")
    return found


def _measured(path: Path, name: str, method: str, seed: int, limit: int, timeout: float) -> Row:
    """A row, by a process of its own; one that fails has the last line of its error for a verdict."""
    script = "fits.py" if method == NATMIX else "nuts.py"
    command = [
        sys.executable,
        str(_HERE / script),
        str(path),
        name,
        str(seed),
        *([str(limit)] * (method == NATMIX)),
    ]
    numbers = dict.fromkeys(("dim", "evaluations", *PURPOSES), 0) | dict.fromkeys(
        ("cpu_seconds", "wall_seconds", "mean", "sd_ratio", "quantile"), float("nan")
    )
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode:
            verdict = f"failed: {(done.stderr.strip().splitlines() or ['without a message'])[-1][:200]}"
        else:
            numbers |= json.loads(done.stdout.strip().splitlines()[-1])
            verdict = str(numbers.pop("verdict"))
    except subprocess.TimeoutExpired:
        verdict = f"failed: not done after {timeout:.0f} s"
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    given = {"posterior": name, "method": method, "seed": seed, "limit": limit}
    return Row(**given, **numbers, verdict=verdict, commit=_commit(), date=date)  # type: ignore[arg-type]


def _commit() -> str:
    command = ["git", "-C", str(_REPOSITORY), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _write(folder: Path, root: Path, path: Path) -> None:
    if rows := read(path):
        arguments = [a for a in sys.argv[1:] if a != "--only-table"]
        command = shlex.join(["python", "benchmarks/quality/posteriordb", "DATABASE", *arguments[1:]])
        text = markdown(
            rows, database.with_reference(root), database.development(root), command, os.cpu_count() or 1
        )
        (folder / "posteriordb.md").write_text(text, encoding="utf-8")
