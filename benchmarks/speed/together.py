"""Seeds together (one `jax.vmap`) or one after another: milliseconds per iteration and seed.

Run: python benchmarks/speed/together.py [--seeds 5] [--repeats 4] [PROBLEM:COMPONENTS:SAMPLES ...]

Each measurement is a window of 30 iterations, one of which searches for a new component; windows of both
kinds take turns. The ratio (median over turns) is below 1 where together is faster. "size" is what the rule
in natmix/experiments/runs compares with its limit. Programs are compiled before; their seconds are given too.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from natmix import GMMVI
from natmix.engine.batch_runner import BatchRunner
from natmix.engine.chunk_runner import ChunkRunner
from natmix.experiments import problems
from natmix.experiments.runs.batch_choice import faster_together, step_size
from natmix.kernels.plan import current

CASES = {
    "cpu": ("gmm2:2:20", "gmm2:8:100", "gmm20:4:20", "gmm20:8:100", "german_credit:8:100", "gmm20:32:100"),
    "gpu": (
        "gmm2:8:100",
        "gmm20:8:100",
        "gmm20:32:100",
        "gmm20:64:100",
        "gmm20:128:100",
        "gmm20:256:100",
        "german_credit:32:100",
        "german_credit:128:100",
        "planar_robot_4:256:100",
        "gmm100:16:200",
        "gmm100:64:200",
        "stm300:16:300",
    ),
}
WINDOW = 30
"""Iterations between additions: every window has one."""


def main(seeds, repeats, cases):
    print(f"{jax.devices()[0].device_kind}, {seeds} seeds; ms per iteration and seed, seconds to compile")
    print(
        f"{'case':22} {'rows':>5} {'size':>13} {'alone':>9} {'together':>9} {'ratio':>6}  rule      compile"
    )
    for case in cases:
        name, components, samples = case.split(":")
        try:
            measure(case, name, int(components), int(samples), seeds, repeats)
        except (ImportError, RuntimeError) as error:
            print(f"{case:22} {type(error).__name__}: {str(error).splitlines()[0]}")


def measure(case, name, components, samples, seeds, repeats):
    found = [problems.load(name, seed=seed) for seed in range(seeds)]
    algorithm = GMMVI.from_codename(
        "samtron",
        sample_selector={"desired_samples": samples},
        component_adaptation={"add_iters": WINDOW, "del_iters": 100},
    )
    rows = components + repeats + 2
    most = algorithm.component_adaptation.most_components(rows)
    alone = [ChunkRunner(algorithm, p.target, most) for p in found]
    together = BatchRunner(algorithm, [p.target for p in found], most)

    def one_by_one(states, n):
        return [a.advance(s, n, None).state for a, s in zip(alone, states, strict=True)]

    def at_once(states, n):
        return [c.state for c in together.advance_batch(states, n, [None] * seeds)]

    variants = (one_by_one, at_once)
    states, spent = [], np.zeros((repeats, 2))
    for variant in variants:
        start = [
            algorithm.init(s, *p.start.mixture(jax.random.key(s), components, jnp.float32), rows)
            for s, p in enumerate(found)
        ]
        states.append(timed(variant, start, 1)[0])
    for turn in range(repeats):
        for i, variant in enumerate(variants):
            states[i], spent[turn, i] = timed(variant, states[i], WINDOW)
    per_iteration = 1e3 * np.median(spent, axis=0) / WINDOW / seeds
    compiling = sum(a.compile_seconds for a in alone), together.compile_seconds
    rule = "together" if faster_together(algorithm, rows, found[0].dim, seeds) else "apart"
    print(
        f"{case:22} {rows:5} {step_size(algorithm, rows, found[0].dim, seeds):13,} "
        f"{per_iteration[0]:9.3f} {per_iteration[1]:9.3f} {np.median(spent[:, 1] / spent[:, 0]):6.2f}  "
        f"{rule:8}  {compiling[0]:.0f}, {compiling[1]:.0f}",
        flush=True,
    )


def timed(variant, states, n):
    start = time.perf_counter()
    states = jax.block_until_ready(variant(states, n))
    return states, time.perf_counter() - start


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    kind = "cpu" if current().on_cpu else "gpu"
    main(options.seeds, options.repeats, options.cases or CASES[kind])
