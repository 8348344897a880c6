"""What the native kernels gain: iterations with them and without them, in turns.

Run: python benchmarks/speed/native_kernels.py [--only ROW ...] [--write results]

For SAMTRON's rows of benchmarks/speed/side_by_side, with as many components as the reference had in the later
phase: milliseconds of an iteration, each the least of three runs of either kind, and their ratio.
"""

import argparse
import csv
import os
import subprocess
import sys
from pathlib import Path

COMPONENTS = {
    "gmm20": 16,
    "breast_cancer": 33,
    "stm20": 53,
    "planar_robot_4": 254,
    "german_credit": 17,
    "gmm100": 8,
    "stm300": 20,
}
ROUNDS = 3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(COMPONENTS), default=list(COMPONENTS))
    parser.add_argument("--write", type=Path, help="folder for native.csv")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        _one(arguments.one)
        return
    rows = []
    print(f"{'row':16}{'without':>10}{'with':>10}{'ratio':>8}")
    for row in arguments.only:
        turns = [{on: _measured(row, on) for on in ("0", "1")} for _ in range(ROUNDS)]
        times = {on: min(turn[on] for turn in turns) for on in ("0", "1")}
        rows.append((row, COMPONENTS[row], round(times["0"], 1), round(times["1"], 1)))
        print(f"{row:16}{times['0']:10.1f}{times['1']:10.1f}{times['0'] / times['1']:8.1f}", flush=True)
    if arguments.write:
        with (arguments.write / "native.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("row", "components", "without_ms", "with_ms"), *rows])


def _measured(row: str, on: str) -> float:
    command = [sys.executable, __file__, "--one", row]
    env = {**os.environ, "NATMIX_NATIVE": on, "JAX_PLATFORMS": "cpu"}
    return float(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


def _one(row: str) -> None:
    from paper_row import later_phase
    from side_by_side.rows import choose

    print(later_phase(choose([row])[0], COMPONENTS[row]).seconds * 1e3)


if __name__ == "__main__":
    main()
