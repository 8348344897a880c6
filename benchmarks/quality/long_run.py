"""Do memory, the time of an iteration and files stay flat in a run of a million iterations?

Run: python benchmarks/quality/long_run.py [--iterations 1000000] [--hours 24] [--checkpoint-seconds 60]

The problem is a Gaussian mixture in two dimensions, fitted with at most eight components. It runs
through `natmix.experiments.runs`, with a trace, weights over time, evaluations and checkpoints. The clock by
which checkpoints are due is simulated: the iterations take --hours altogether. A hundred times in the run
one row is written: resident memory, milliseconds per iteration (processor time of this process), the number
of components, -ELBO, open files, memory maps, sizes of the files.

The trace has one row per iteration by design, so the checkpoint grows with the run. The table says by how
many bytes per iteration, and whether memory grows by more than that.
"""

import argparse
import csv
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from case_table import ROOT, markdown, provenance

from natmix.engine import checkpoint_schedule
from natmix.experiments import problems, runs
from natmix.experiments.runs import Limits
from natmix.experiments.runs.watcher import Silence

OVERRIDES = {
    "sample_selector": {"desired_samples": 20},
    "component_adaptation": {"max_components": 8, "add_iters": 100, "database_size": 2_000},
}
PARTS = 100


class SimulatedTime:
    """Stands in for the module `time`: its clock goes by iterations."""

    def __init__(self, seconds_per_iteration: float) -> None:
        self.iterations, self._each = 0, seconds_per_iteration

    def perf_counter(self) -> float:
        """Simulated seconds."""
        return self.iterations * self._each


class Rows(Silence):
    """Writes a row whenever a part of the run is over."""

    def __init__(self, path: Path, folder: Path, clock: SimulatedTime, every: int) -> None:
        self._path, self._folder, self._clock, self._every = path, folder, clock, every
        self._next, self._last = every, (0, time.process_time())
        self.rows: list[dict[str, Any]] = []

    def update(self, snapshot: Any) -> None:
        self._clock.iterations = snapshot.iteration if hasattr(snapshot, "iteration") else snapshot.iterations
        if self._clock.iterations < self._next:
            return
        self._next += self._every
        before, spent = self._last
        now = time.process_time()
        done = self._clock.iterations
        sizes = {path.name: path.stat().st_size for path in self._folder.rglob("*") if path.is_file()}
        row = {
            "iterations": done,
            "simulated hours": round(self._clock.perf_counter() / 3600, 2),
            "resident MB": round(_status("VmRSS") / 1e6, 1),
            "ms per iteration": round(1e3 * (now - spent) / max(1, done - before), 4),
            "components": snapshot.components,
            "-ELBO": None if snapshot.neg_elbo is None else round(snapshot.neg_elbo, 4),
            "live arrays MB": round(sum(a.nbytes for a in jax.live_arrays()) / 1e6, 2),
            "open files": len(os.listdir("/proc/self/fd")),
            "memory maps": Path("/proc/self/maps").read_text().count("\n"),
            "files": len(sizes),
            "checkpoint MB": round(sizes.get("state.safetensors", 0) / 1e6, 2),
            "metrics kB": round(sizes.get("metrics.jsonl", 0) / 1e3, 1),
        }
        self.rows.append(row)
        self._last = done, now
        with self._path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.rows[0])
            writer.writeheader()
            writer.writerows(self.rows)
        print(row, flush=True)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def slope(rows: list[dict[str, Any]], what: str) -> float:
    """Change per iteration over the second half of the run, by a line."""
    half = rows[len(rows) // 2 :]
    x = np.array([row["iterations"] for row in half], float)
    y = np.array([row[what] for row in half], float)
    return float(np.polyfit(x, y, 1)[0]) if len(half) > 1 else float("nan")


def write_table(path: Path, rows: list[dict[str, Any]], hours: float, seconds: float) -> None:
    """Ten rows of the run and the slopes of the second half."""
    shown = rows[:: max(1, len(rows) // 10)]
    shown = shown if shown[-1] is rows[-1] else [*shown, rows[-1]]
    memory, checkpoint = slope(rows, "resident MB") * 1e6, slope(rows, "checkpoint MB") * 1e6
    times = np.array([row["ms per iteration"] for row in rows])
    quarters = ", ".join(f"{np.median(part):.3f}" for part in np.array_split(times, 4))
    lines = [
        "# A long run",
        "",
        f"{rows[-1]['iterations']:,} iterations of SAMTRON on gmm2 in {rows[-1]['simulated hours']:g} "
        f"simulated hours (of {hours:g}), with a checkpoint every {seconds:g} simulated seconds: "
        "[long_run.py](../benchmarks/quality/long_run.py).",
        "",
        f"Over the second half resident memory grows by {memory:.0f} bytes per iteration, the checkpoint by "
        f"{checkpoint:.0f} (the trace, which has one row per iteration). The median time of an iteration is "
        f"{quarters} ms in the four quarters of the run: processor time of the process on a shared machine, "
        "with the writing of checkpoints, which grow.",
        "",
        markdown(list(shown[0]), [["" if v is None else v for v in row.values()] for row in shown]),
        "",
        provenance([]),
        "",
    ]
    path.write_text("\n".join(lines))


def main() -> None:
    """Run, row by row, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=1_000_000)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0)
    parser.add_argument("--write", type=Path, default=ROOT / "results")
    arguments = parser.parse_args()
    clock = SimulatedTime(3600 * arguments.hours / arguments.iterations)
    vars(checkpoint_schedule)["time"] = clock
    problem = problems.load("gmm2")
    limits = Limits(max_iterations=arguments.iterations)
    config = runs.configure(problem, overrides=OVERRIDES, limits=limits)
    folder = Path(tempfile.mkdtemp())
    every = max(1, arguments.iterations // PARTS)
    rows = Rows(arguments.write / "long_run.csv", folder, clock, every)
    try:
        runs.execute(
            config,
            [0],
            folder / "run",
            lambda seed: problem,
            watcher=rows,
            checkpoint_seconds=arguments.checkpoint_seconds,
        )
    finally:
        if rows.rows:
            table = arguments.write / "long_run.md"
            write_table(table, rows.rows, arguments.hours, arguments.checkpoint_seconds)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
