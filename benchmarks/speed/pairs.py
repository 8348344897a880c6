"""Milliseconds of an iteration in this tree and in another one, in turns: has a change made it slower?

Run: git worktree add /tmp/before COMMIT
     python benchmarks/speed/pairs.py /tmp/before [--rows gmm20 stm20] [--sizes 16:20:300] [--pairs 9]

Rows are those of `side_by_side` with the paper's settings (`paper_row.py`), sizes are components, dimensions
and samples per component (`gpu.py`). Each tree has one process, which compiles once. Then the two take turns;
which of them is first changes from pair to pair. The interval is that of the median of the ratios, by order
statistics: at least 95%.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
ROWS = ("gmm20", "stm20", "german_credit", "breast_cancer")
SECONDS = 1.0
"""Of one measurement, at least."""


class Tree:
    """A process that runs the iterations of one tree."""

    def __init__(self, root: Path) -> None:
        folder = next(p.parent for p in sorted(root.glob("benchmarks/**/paper_row.py")))
        paths = [str(root / "src"), str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-P", str(HERE), "--serve"]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        )

    def ask(self, **request: Any) -> float:
        """The answer to a request."""
        self.send(**request)
        return self.answer()

    def send(self, **request: Any) -> None:
        """A request, whose answer is read later."""
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)

    def answer(self) -> float:
        """The answer to the last request."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("A process of the comparison ended; its error is above.")
        return float(line)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compare(other: Path, rows: list[str], sizes: list[str], pairs: int) -> None:
    print(f"{'':>15} {'here, ms':>9} {'other, ms':>9} {'ratio':>7} {'95% of the median':>19}")
    for kind, name in [*(("row", r) for r in rows), *(("size", s) for s in sizes)]:
        trees = [Tree(ROOT), Tree(other)]
        for tree in trees:
            tree.send(**{kind: name})
        for tree in trees:
            tree.answer()
        spent = np.empty((pairs, 2))
        for pair in range(pairs):
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                spent[pair, side] = trees[side].ask(time=SECONDS)
        for tree in trees:
            tree.close()
        ratio = np.sort(spent[:, 0] / spent[:, 1])
        low = max(int(binom.ppf(0.025, pairs, 0.5)) - 1, 0)
        here, there = np.median(spent, axis=0)
        interval = f"{ratio[low]:.3f} to {ratio[pairs - 1 - low]:.3f}"
        print(f"{name:>15} {here:9.3f} {there:9.3f} {np.median(ratio):7.3f} {interval:>19}", flush=True)


def serve() -> None:
    """Answer requests: prepare a row or a size, or time a measurement; milliseconds of an iteration."""
    answers, sys.stdout = sys.stdout, sys.stderr
    measure = None
    for line in sys.stdin:
        request = json.loads(line)
        if "time" in request:
            assert measure is not None
            spent = measure(request["time"])
        else:
            measure = row_measure(request["row"]) if "row" in request else size_measure(request["size"])
            spent = measure(0.0)
        print(spent, file=answers, flush=True)


def size_measure(size: str) -> Any:
    import gpu

    algorithm, target, mixture = gpu.set_up(tuple(int(n) for n in size.split(":")))
    rows = mixture.num_components + gpu.WINDOWS
    runner = _runner(gpu)(algorithm, target, rows)
    start = algorithm.init(0, mixture, capacity=rows)
    start = runner.advance(start, 2, None).state
    return _timed(runner, start, gpu.WINDOWS * gpu.WINDOW)


def row_measure(name: str) -> Any:
    import paper_row
    from side_by_side.rows import choose

    usual = {"gmm20": 15, "stm20": 30, "german_credit": 1, "breast_cancer": 40}
    phase = paper_row.later_phase(choose([name])[0], usual.get(name, 20))
    most = phase.algorithm.component_adaptation.most_components(int(phase.components) + 1)
    return _timed(_runner(paper_row)(phase.algorithm, phase.target, most), phase.state, 30)


def _runner(module: Any) -> Any:
    return getattr(module, "ChunkRunner", None) or module.Runner


def _timed(runner: Any, start: Any, iterations: int) -> Any:
    """Runs of so many iterations from one state, until the time is over."""
    import jax
    import jax.numpy as jnp

    def run() -> float:
        state = jax.block_until_ready(jax.tree.map(jnp.copy, start))  # a run donates it
        before, done = time.perf_counter(), 0
        while done < iterations:
            chunk = runner.advance(state, iterations - done, None)
            state = jax.block_until_ready(chunk.state)
            done += len(chunk.infos["components"])
        return time.perf_counter() - before

    run()

    def measure(seconds: float) -> float:
        times: list[float] = []
        begin = time.perf_counter()
        while not times or time.perf_counter() - begin < seconds:
            times.append(run())
        return 1e3 * float(np.median(times)) / iterations

    return measure


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("other", type=Path, help="the root of the other tree")
        parser.add_argument("--rows", nargs="*", default=list(ROWS))
        parser.add_argument("--sizes", nargs="*", default=[])
        parser.add_argument("--pairs", type=int, default=9)
        options = parser.parse_args()
        compare(options.other.resolve(), options.rows, options.sizes, options.pairs)
