"""What benchmarks over many seeded cases share: a CSV file that grows row by row, processes, the commit."""

import argparse
import csv
import datetime
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import jax

from natmix.kernels.compilation_cache import use_compilation_cache

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]


def seed_range(text: str) -> list[int]:
    """Seeds from "0:60" (the end is left out), "0:60:2" (every other), "7", or a comma-separated list."""
    seeds: list[int] = []
    for part in text.split(","):
        numbers = [int(number) for number in part.split(":")]
        seeds += range(*numbers) if len(numbers) > 1 else numbers
    return seeds


def half(seed: int) -> str:
    """Even seeds are for development, odd ones are looked at only at the end."""
    return "held out" if seed % 2 else "development"


def add_arguments(parser: argparse.ArgumentParser, seeds: str | None, name: str) -> None:
    """The arguments that all these benchmarks have."""
    parser.add_argument(
        "--seeds", type=seed_range, default=seeds, help='as "0:60" or "0:60:2", the end left out'
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--cores", type=int, default=0, help="that each process keeps to; 0 is no limit")
    parser.add_argument("--csv", type=Path, default=ROOT / "results" / f"{name}.csv")
    parser.add_argument("--table", type=Path, default=ROOT / "results" / f"{name}.md")
    parser.add_argument("--again", action="store_true", help="also cases whose rows are in the file already")
    parser.add_argument("--only-table", action="store_true", help="run nothing, write the table of the file")
    parser.add_argument("--float64", action="store_true", help="instead of JAX's default, float32")


def read_rows(path: Path, key: Sequence[str]) -> dict[tuple[str, ...], Row]:
    """The rows of the file by their keys; the last one counts."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {tuple(row[k] for k in key): row for row in csv.DictReader(file)}


def merge_rows(path: Path, others: Sequence[Path], key: Sequence[str]) -> None:
    """Let the rows of other files replace those of the same key, or follow them."""
    rows = read_rows(path, key)
    for other in others:
        if not other.exists():
            raise SystemExit(f"There is no file {other} to merge.")
        rows |= read_rows(other, key)
    _write(path, list(dict.fromkeys(c for row in rows.values() for c in row)), list(rows.values()))


_CASES_PER_CACHE = 100


def run_cases(
    cases: Sequence[Row],
    work: Callable[[Row], Row],
    path: Path,
    jobs: int,
    again: bool,
    float64: bool,
    cores: int = 0,
) -> None:
    """Run ``work`` on every case that the file has no row of; rows are appended as they come.

    A case is a dictionary, which is the key of its row. ``work`` is a function of a module. A case that
    raises has an ``error`` instead of the other columns. Each process keeps to so many cores, if not 0.
    """
    if not cases:
        return
    if max(jobs, 1) * cores > _cores():
        raise SystemExit(f"{jobs} processes of {cores} cores each are more than the {_cores()} there are.")
    known = {} if again else read_rows(path, list(cases[0]))
    left = [case for case in cases if tuple(str(v) for v in case.values()) not in known]
    print(f"{len(left)} of {len(cases)} cases to run", flush=True)
    if jobs <= 1 and not cores:
        _set_up(float64)
        for i, case in enumerate(left):
            if i % _CASES_PER_CACHE == 0:
                jax.clear_caches()  # programs hold memory maps, of which a process may have 65530
            _append(path, _timed(work, case))
        return
    context = multiprocessing.get_context("spawn")
    places = context.SimpleQueue()
    if cores:  # NumPy makes its threads when it is imported
        os.environ["OPENBLAS_NUM_THREADS"] = str(cores)
    for place in range(jobs):
        places.put(place)
    with ProcessPoolExecutor(jobs, context, initializer=_set_up, initargs=(float64, cores, places)) as pool:
        for future in as_completed([pool.submit(_timed, work, case) for case in left]):
            _append(path, future.result())


def _cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _set_up(float64: bool, cores: int = 0, places: Any = None) -> None:
    if cores:  # before JAX makes its threads
        place = places.get()
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[place * cores : (place + 1) * cores])
    jax.config.update("jax_enable_x64", float64)
    use_compilation_cache()


def _timed(work: Callable[[Row], Row], case: Row) -> Row:
    before = time.perf_counter()
    try:
        row = {**case, **work(case), "error": ""}
    except Exception as error:
        row = {**case, "error": f"{type(error).__name__}: {error}"}
    seconds = round(time.perf_counter() - before, 2)
    return {**row, "case_seconds": seconds, "cores": _cores(), "commit": commit()}


def _append(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    columns = list(row)
    if path.exists():
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            columns = list(reader.fieldnames or [])
    new = [c for c in row if c not in columns]
    if new or not rows:
        _write(path, columns + new, [*rows, row])
    else:
        with path.open("a", newline="") as file:
            csv.DictWriter(file, columns).writerow(row)
    print(", ".join(f"{k} {_short(v)}" for k, v in row.items() if v not in ("", None)), flush=True)


def _write(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def commit() -> str:
    """The commit of the repository, with a + if files have changed since."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def provenance(rows: Sequence[Row]) -> str:
    """When, of which commits and how a table was made."""
    commits = ", ".join(sorted({row["commit"] for row in rows if row.get("commit")}))
    command = " ".join(["python", *(a.replace(f"{ROOT}/", "") for a in sys.argv)])
    return f"{datetime.date.today().isoformat()}, commit {commits or commit()}, `{command}`."


def markdown(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A table; the first column is text, the others are aligned to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(str(c) for c in line) + " |" for line in (header, rule, *lines))


def share_interval(hits: int, n: int) -> tuple[float, float]:
    """The 95% interval of a share by Clopper and Pearson."""
    from scipy.stats import beta

    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, n - hits + 1))
    high = 1.0 if hits == n else float(beta.ppf(0.975, hits + 1, n - hits))
    return low, high
