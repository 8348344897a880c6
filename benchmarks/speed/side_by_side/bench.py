"""natmix and the reference gmmvi 1.1 in turns: same problem, algorithm, hyperparameters, start and seed.

Every run is a process of its own and none runs at the same time as another: natmix, gmmvi, natmix, gmmvi with
MALLOC_MMAP_MAX_=0. What was measured stays in benchmarks/out, apart for every number of seconds, so that a
bench that was broken off goes on where it was; the table is made from whatever is there.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from side_by_side import load
from side_by_side.load import ALLOCATORS
from side_by_side.rows import ROWS, Row, choose

ROOT = Path(__file__).resolve().parents[3]
OUT = ROOT / "benchmarks" / "out"
RESULTS = ROOT / "results"
THEIRS = ROOT / ".venv-gmmvi" / "bin" / "python"

SECONDS = 180.0

console = Console(highlight=False)


class Turn(NamedTuple):
    side: str
    run: str
    arguments: tuple[str, ...]
    environment: dict[str, str]


def turns(targets: list[str], allocators: list[str]) -> list[Turn]:
    """natmix and the reference by turns, the reference with every target and setting of the allocator."""
    found: list[Any] = []
    for target in targets:
        for allocator in allocators:
            variables = ALLOCATORS[allocator]
            found.append(Turn("ours", f"ours-{len(found) // 2 + 1}", (), {}))
            found.append(Turn("theirs", f"theirs-{target}-{allocator}", (target,), variables))
    return found


class WorkerError(Exception):
    """A process that did not end well."""


def chosen_targets(row: Row, asked: str, usable: list[str]) -> list[str]:
    """The row's targets that were asked for ("both" for all), or else the last one that is usable."""
    found = [target for target in row.targets if target in usable]
    if not found:
        raise WorkerError(f"the reference has no {' or '.join(row.targets)} target that is the same function")
    return [target for target in found if asked in (target, "both")] or found[-1:]


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.pythons = {"ours": sys.executable, "theirs": str(options.theirs)}

    def row(self, row: Row, seed: int) -> None:
        """All turns of a row that are not there yet."""
        directory = self.options.out / f"{row.name}-seed{seed}"
        targets = chosen_targets(row, self.options.targets, self._prepare(row, seed, directory))
        for turn in turns(targets, self.options.allocators):
            budget = self._budget(turn.side)
            if not self._again(turn.side) and load.is_complete(directory / f"{turn.run}.json", budget):
                console.print(f"  {turn.run}: there already")
                continue
            before = time.perf_counter()
            given = (directory, turn.run, str(budget), *turn.arguments)
            self._worker(turn.side, turn.side, *given, more=turn.environment)
            self._worker("ours", "judge", directory, turn.run)
            console.print(f"  {turn.run}: done in {time.perf_counter() - before:.0f} s")

    def _prepare(self, row: Row, seed: int, directory: Path) -> list[str]:
        """Write what both sides share; the targets that the reference can use."""
        settings = directory / "settings.json"
        old = settings.read_text() if settings.exists() else None
        if row.split_by_reference:
            self._worker("theirs", "split", str(seed), directory)
        self._worker("ours", "prepare", row.problem, row.codename, str(seed), directory)
        if old is not None and old != settings.read_text():
            console.print("  the settings are others than before: everything is measured anew")
            for run in (*directory.glob("ours-*.json"), *directory.glob("theirs-*.json")):
                run.unlink()
        self._worker("theirs", "check", directory)
        found = json.loads((directory / "targets.json").read_text())
        for message in found["messages"]:
            console.print(f"  {message}")
        return found["usable"]

    def _budget(self, side: str) -> float:
        own = self.options.ours_seconds
        return self.options.seconds if side == "theirs" or own is None else own

    def _again(self, side: str) -> bool:
        return self.options.again in (side, "both")

    def _worker(
        self, side: str, module: str, *arguments: str | Path, more: dict[str, str] | None = None
    ) -> str:
        command = [self.pythons[side], "-m", f"side_by_side.{module}", *map(str, arguments)]
        done = subprocess.run(
            command, env=environment() | (more or {}), cwd=ROOT, capture_output=True, text=True
        )
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-5:]
            raise WorkerError(f"{module} ended with {done.returncode}: " + "\n    ".join(last))
        return done.stdout


def environment() -> dict[str, str]:
    """The user's, on the CPU alone and without programs compiled before."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "JAX_COMPILATION_CACHE"))}
    path = os.pathsep.join(p for p in (str(ROOT / "benchmarks" / "speed"), kept.get("PYTHONPATH", "")) if p)
    return kept | {
        "PYTHONPATH": path,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="side_by_side", description=__doc__.splitlines()[0])
    names = ", ".join(row.name for row in ROWS)
    parser.add_argument("--only", nargs="+", metavar="ROW", help=f"these rows: {names}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for each run ({SECONDS:g})")
    parser.add_argument("--ours-seconds", type=float, help="for natmix's runs, if others")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 0 on (1)")
    parser.add_argument(
        "--again",
        nargs="?",
        const="both",
        choices=("ours", "theirs", "both"),
        help="measure anew what is there already",
    )
    parser.add_argument(
        "--targets",
        choices=("shipped", "own", "both"),
        default="shipped",
        help="the reference's log densities: those that come with it where they are the same function "
        "(shipped), faster ones written for this benchmark (own), or both in turn; wine and wine-fast have "
        "one each",
    )
    parser.add_argument(
        "--allocators",
        nargs="+",
        choices=tuple(ALLOCATORS),
        default=list(ALLOCATORS),
        help="settings of the allocator that the reference is run with (all; the better one counts)",
    )
    parser.add_argument("--table", action="store_true", help="measure nothing, only write the table anew")
    parser.add_argument("--theirs", type=Path, default=THEIRS, help="Python of the environment with gmmvi")
    parser.add_argument(
        "--results",
        type=Path,
        help=f"where table and figures go (results; with other than {SECONDS:g} seconds beside the runs)",
    )
    options = parser.parse_args(given)
    options.out = OUT / f"{options.seconds:g}s"
    options.results = options.results or (RESULTS if options.seconds == SECONDS else options.out)
    return options


def jobs(options: argparse.Namespace) -> Iterator[tuple[Row, int]]:
    for row in choose(options.only):
        for seed in range(options.seeds):
            yield row, seed


def measure(options: argparse.Namespace) -> int:
    """Run what is missing; the number of rows that failed."""
    if not options.theirs.exists():
        raise SystemExit(f"There is no {options.theirs}: `make bench` sets it up, or name it with --theirs.")
    if not min(options.seconds, options.ours_seconds or options.seconds) > 0:
        raise SystemExit("The seconds for a run must be positive.")
    if options.seeds < 1:
        raise SystemExit("There must be at least one seed.")
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    if busy > cores / 2:
        console.print(f"The machine is busy (load {busy:.1f} on {cores} cores): these numbers will not last.")
    bench, failed = Bench(options), 0
    for row, seed in jobs(options):
        console.print(f"[bold]{row.name}[/bold], {row.codename}, seed {seed}")
        try:
            bench.row(row, seed)
        except WorkerError as error:
            console.print(f"  {error}", style="red", markup=False)
            failed += 1
    return failed


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    try:
        failed = 0 if options.table else measure(options)
    except KeyboardInterrupt:
        console.print("\nBroken off; the same command goes on from here.")
        return 130
    from side_by_side import figure, table

    rows = load.rows(options.out)
    if not rows:
        console.print("Nothing has been measured yet.")
        return 1
    measured = table.measure(rows)
    console.print(table.for_terminal(measured))
    options.results.mkdir(parents=True, exist_ok=True)
    table.write(measured, load.described(rows), options.results)
    figure.write(rows, options.results)
    console.print(f"Written to {options.results}: bench_cpu.csv, bench_cpu.md, bench_cpu.png and more.")
    return 1 if failed else 0
