"""Does the estimate of what a run needs (`natmix.engine.memory`) agree with what it takes?

Run: python benchmarks/speed/memory.py [--write results] [--only NAME ...]

Every case is a process of its own: it makes the state, compiles the program, and then runs a few iterations.
What these take beyond what the process had before them is compared with the estimated temporaries. It is
the kernel's count of the largest resident memory (VmHWM, reset by /proc/self/clear_refs: Linux only). The
size of the state is compared with the estimated one. On a CPU; the target is a Gaussian.
"""

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Case(NamedTuple):
    """One run; ``components`` are all present at its start."""

    components: int
    dim: int
    samples: int
    codename: str = "SAMTRON"
    covariance: str = "full"
    reuse: float = 0.0
    stored: int = 1_000
    adds: bool = False


CASES = {
    "small": Case(16, 5, 100),
    "many components": Case(500, 5, 60),
    "many components, adding": Case(256, 10, 60, stored=50_000, adds=True),
    "many samples": Case(64, 20, 1_000),
    "100 dimensions": Case(64, 100, 300),
    "300 dimensions": Case(32, 300, 300),
    "1,000 dimensions": Case(8, 1_000, 300),
    "diagonal, 2,000 dimensions": Case(32, 2_000, 300, covariance="diagonal"),
    "diagonal, many samples": Case(64, 100, 1_000, covariance="diagonal"),
    "without gradients": Case(64, 20, 350, "ZAMTRON"),
    "without gradients, 50 dimensions": Case(16, 50, 2_000, "ZAMTRON"),
    "without gradients, diagonal": Case(64, 100, 300, "ZAMTRON", "diagonal"),
    "reused samples": Case(64, 20, 120, reuse=3.0),
    "reused samples, 100 dimensions": Case(32, 100, 300, reuse=3.0),
    "samples of the mixture": Case(64, 20, 20_000, "SEPYFUX"),
    "a large store": Case(16, 50, 100, stored=1_000_000, adds=True),
}


def measure(case: Case) -> dict[str, Any]:
    """In this process: bytes of the state, of the temporaries, and both as estimated."""
    import jax
    import jax.numpy as jnp

    from natmix import GMMVI, JaxTarget, Mixture
    from natmix.engine.chunk_runner import ChunkRunner
    from natmix.engine.memory import bytes_needed

    K, D = case.components, case.dim
    overrides: dict[str, Any] = {
        "sample_selector": {"desired_samples": case.samples, "reuse_ratio": case.reuse}
    }
    if "A" in case.codename:
        overrides["component_adaptation"] = {
            "add_iters": 2 if case.adds else 10**9,
            "database_size": case.stored,
            "max_components": K + 8,
        }
    algorithm = GMMVI.from_codename(case.codename, **overrides)
    means = 3 * jax.random.normal(jax.random.key(0), (K, D))
    if case.covariance == "diagonal":
        mixture = Mixture.diagonal(jnp.ones(K), means, jnp.ones((K, D)))
    else:
        mixture = Mixture.full(jnp.ones(K), means, jnp.broadcast_to(jnp.eye(D), (K, D, D)))
    target = JaxTarget(lambda x: -0.5 * jnp.sum(x**2), D)
    slots = K + 8 if case.adds else K
    state = algorithm.init(0, mixture, capacity=slots)
    state_bytes = sum(a.nbytes for a in jax.tree.leaves(state) if hasattr(a, "nbytes"))
    runner = ChunkRunner(algorithm, target, slots)
    state = runner._compiled(state)
    need = bytes_needed(algorithm, type(mixture.components), D, mixture.dtype, slots)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    for _ in range(2):
        state = jax.block_until_ready(runner.advance(state, 3, None).state)
    return {
        "state": state_bytes,
        "estimated state": need.state,
        "temporaries": _status("VmHWM") - before,
        "estimated temporaries": need.temporaries,
    }


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def main() -> None:
    """Each case in a process, and a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(CASES[arguments.case])))
        return
    rows = []
    for name in arguments.only:
        command = [sys.executable, __file__, "--case", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        megabytes = {key: round(value / 1e6, 1) for key, value in found.items()}
        both = found["estimated state"] + found["estimated temporaries"]
        ratio = both / (found["state"] + max(found["temporaries"], 1))
        rows.append({"case": name, **megabytes, "estimate / measured": round(ratio, 2)})
        print(rows[-1], flush=True)
    if arguments.write:
        with (arguments.write / "memory.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
