"""A dozen default fits in about five minutes: has anything become worse since the last time?

Run: python benchmarks/quality/quick_bench.py [--only NAME ...] [--history FILE] [--seed N]

Every target has a known log Z. For each: evaluations, the gap log Z - ELBO, the verdict, and the CPU time
as a multiple of that of a fixed piece of arithmetic in the same run, so that machines compare roughly. A line
for each target is appended to the history with the commit. What is worse than the newest line of another
commit is flagged: evaluations by a quarter, the gap by 0.02 nats, time by a half, a verdict that was "trust".
"""

import argparse
import csv
import subprocess
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from quick_targets import TARGETS

import natmix

HISTORY = Path(__file__).with_name("quick_history.csv")
COLUMNS = ("commit", "target", "seed", "evaluations", "gap", "verdict", "time", "components")
MAX_EVALUATIONS = 200_000
_MORE_EVALUATIONS, _LARGER_GAP, _MORE_TIME = 1.25, 0.02, 1.5

Row = dict[str, str]


def arithmetic_seconds() -> float:
    """CPU seconds of the fixed piece of arithmetic, the least of five times."""
    a = np.random.default_rng(0).normal(size=(200, 200))

    def once() -> float:
        start, b = time.process_time(), a
        for _ in range(200):
            b = np.tanh(a @ b / 14)
        return time.process_time() - start

    return min(once() for _ in range(5))


def measure(name: str, seed: int, unit: float, commit: str) -> Row:
    """One default fit."""
    target = TARGETS[name]
    start = time.process_time()
    result = natmix.fit(
        target.log_density,
        target.dim,
        data=target.data,
        seed=seed,
        max_evaluations=MAX_EVALUATIONS,
        progress=False,
        **target.options,
    )
    verdict = result.diagnosis.verdict if result.diagnosis is not None else "none"
    spent = time.process_time() - start
    return {
        "commit": commit,
        "target": name,
        "seed": str(seed),
        "evaluations": str(result.counts.evaluations),
        "gap": f"{target.log_z - result.elbo.value:.4f}",
        "verdict": verdict,
        "time": f"{spent / unit:.1f}",
        "components": str(result.mixture.num_components),
    }


def worse(new: Row, old: Row) -> list[str]:
    """What is worse than before."""
    found = []
    if float(new["evaluations"]) > _MORE_EVALUATIONS * float(old["evaluations"]):
        found.append(f"evaluations {old['evaluations']} -> {new['evaluations']}")
    # NaN is worse than any gap.
    if not float(new["gap"]) <= float(old["gap"]) + _LARGER_GAP:
        found.append(f"gap {old['gap']} -> {new['gap']}")
    if float(new["time"]) > _MORE_TIME * float(old["time"]):
        found.append(f"time {old['time']} -> {new['time']}")
    if old["verdict"] == "trust" != new["verdict"]:
        found.append(f"verdict {old['verdict']} -> {new['verdict']}")
    return found


def before(history: list[Row], new: Row) -> Row | None:
    """The newest line of the same fit by another commit."""
    same = [r for r in history if (r["target"], r["seed"]) == (new["target"], new["seed"])]
    return next((r for r in reversed(same) if r["commit"] != new["commit"]), None)


def read(path: Path) -> list[Row]:
    """The lines so far."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: Row) -> None:
    """One more line."""
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(row)


def current_commit() -> str:
    """The commit, with a plus sign if there are changes."""
    git: dict[str, Any] = {"cwd": Path(__file__).parent, "capture_output": True, "text": True, "check": True}
    name = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], **git).stdout.strip()
    changed = subprocess.run(["git", "status", "--porcelain", "--", "../../src"], **git).stdout.strip()
    return name + ("+" if changed else "")


def main() -> None:
    """The command; its exit status is 1 if something is worse."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(TARGETS), default=list(TARGETS), metavar="NAME")
    parser.add_argument("--history", type=Path, default=HISTORY)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    natmix.compilation_cache(False)  # compilation is a part of the time
    history, commit, unit = read(options.history), current_commit(), arithmetic_seconds()
    print(f"{commit}; one unit of time is {unit:.3f} s of CPU")
    flagged = 0
    for name in options.only:
        jax.clear_caches()
        row = measure(name, options.seed, unit, commit)
        append(options.history, row)
        old = before(history, row)
        marks = [] if old is None else worse(row, old)
        flagged += bool(marks)
        line = "  ".join(f"{row[c]:>11}" for c in COLUMNS[3:])
        print(
            f"{name:16} {line}"
            + (f"   WORSE than {old['commit']}: {'; '.join(marks)}" if marks and old else "")
        )
    print(f"{flagged} of {len(options.only)} worse" if flagged else "nothing is worse")
    raise SystemExit(1 if flagged else 0)


if __name__ == "__main__":
    main()
