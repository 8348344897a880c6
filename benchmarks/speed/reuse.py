"""What reusing samples saves, and what keeping their background density up to date saves.

Run: python benchmarks/speed/reuse.py [--write results] [--iterations 300] [PROBLEM:COMPONENTS ...]

SAMTRON with the paper's hyperparameters on a problem, from so many components, three variants, each in a
process of its own:

    none          reuse_ratio 0: every component draws its desired samples anew
    reuse         the paper's reuse_ratio of german_credit (1.618): new samples are what the effective sample
                  size of old ones leaves to be desired; the background of old samples is updated
    recomputed    the same numbers, but the background of all old samples under all remembered Gaussians is
                  computed anew in every iteration

Evaluations and milliseconds are per iteration (of the second half), the -ELBO is that of the last mixture by
20,000 samples. "reuse" and "recomputed" must agree, which is checked.
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natmix import GMMVI
from natmix.engine.capacity import initial_capacity
from natmix.engine.chunk_runner import ChunkRunner
from natmix.experiments import presets, problems
from natmix.modules.sample_selectors.reuse import Ring

CASES = ("german_credit:1", "german_credit:8", "breast_cancer:8", "gmm20:16", "gmm100:4")
VARIANTS = {"none": 0.0, "reuse": 1.61803, "recomputed": 1.61803}
WINDOW = 50
ELBO_SAMPLES = 20_000
COLUMNS = (
    "problem",
    "components",
    "variant",
    "evaluations_per_iteration",
    "milliseconds_per_iteration",
    "neg_elbo",
    "evaluations",
)


class Outcome(NamedTuple):
    evaluations: float
    milliseconds: float
    neg_elbo: float
    total: int


class Run:
    """One variant of one case, advanced window by window."""

    def __init__(self, problem, codename, preset, components, ratio):
        overrides = {k: dict(v) for k, v in preset.overrides.items()}
        overrides["sample_selector"] |= {"reuse_ratio": ratio}
        overrides["component_adaptation"] |= {"max_components": components}
        self.problem = problem
        self.algorithm = GMMVI.from_codename(codename, **overrides)
        mixture, prior = preset.start(problem.dim).mixture(jax.random.key(0), components, jnp.float32)
        rows = initial_capacity(self.algorithm, components, problem.dim)
        self.state = self.algorithm.init(0, mixture, prior, rows)
        self.runner = ChunkRunner(self.algorithm, problem.target, rows)
        self.state = self.runner.advance(self.state, 1, None).state
        self.windows = []
        self.elbos = []

    def advance(self):
        start = time.perf_counter()
        result = self.runner.advance(self.state, WINDOW, None)
        self.state = jax.block_until_ready(result.state)
        spent = time.perf_counter() - start
        n = len(result.infos["elbo"])
        self.windows.append((spent / n * 1e3, float(np.mean(result.infos["evaluations"])), n))
        self.elbos += list(result.infos["elbo"])

    def outcome(self) -> Outcome:
        later = self.windows[len(self.windows) // 2 :]
        mixture = self.state.mixture
        x = mixture.sample(ELBO_SAMPLES, key=1)
        log_target = self.problem.target.evaluate(jax.random.key(2), x, ELBO_SAMPLES, False).log_density
        neg_elbo = float(jnp.mean(mixture.log_prob(x) - log_target))
        total = int(sum(mean * n for _, mean, n in self.windows))
        return Outcome(
            float(np.mean([w[1] for w in later])), float(np.median([w[0] for w in later])), neg_elbo, total
        )


def recomputed(self, x, log_sums, used, count):
    """The background of old samples from all remembered Gaussians."""
    return self.gaussians.mixture_log_prob(jnp.log(used), x, count)


def alone(case, variant, iterations):
    """One variant, in this process: what it found, as JSON."""
    name, components = case.split(":")
    if variant == "recomputed":
        Ring._log_mass = recomputed  # type: ignore[method-assign]
    problem, preset = problems.load(name, seed=0), presets.paper("samtron", name)
    run = Run(problem, "samtron", preset, int(components), VARIANTS[variant])
    for _ in range(iterations // WINDOW):
        run.advance()
    print(json.dumps({"outcome": run.outcome(), "elbos": [float(e) for e in run.elbos[:10]]}))


def measure(case, iterations):
    name, components = case.split(":")
    found = {}
    for variant in VARIANTS:
        command = [sys.executable, __file__, case, "--variant", variant, "--iterations", str(iterations)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[variant] = json.loads(done.stdout.splitlines()[-1])
    early = [np.asarray(found[variant]["elbos"]) for variant in ("reuse", "recomputed")]
    if not np.allclose(*early, rtol=1e-2, atol=1e-2):  # type: ignore[arg-type, misc]
        raise SystemExit(f"{case}: the two variants of the background disagree: {early}")
    return [(name, int(components), variant, *found[variant]["outcome"]) for variant in VARIANTS]


def main(cases, iterations, write):
    print(f"{jax.devices()[0].device_kind}, {iterations} iterations")
    print(f"{'case':18} {'variant':11} {'evaluations':>12} {'ms':>8} {'-ELBO':>10} {'all evaluations':>16}")
    rows = []
    for case in cases:
        for row in measure(case, iterations):
            rows.append(row)
            print(
                f"{case:18} {row[2]:11} {row[3]:12.1f} {row[4]:8.2f} {row[5]:10.3f} {row[6]:16,}", flush=True
            )
    if write:
        write.mkdir(parents=True, exist_ok=True)
        with (write / "reuse.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--variant", choices=tuple(VARIANTS), help="only this one, in this process")
    options = parser.parse_args()
    if options.iterations < WINDOW:
        parser.error(f"--iterations must be at least {WINDOW}, the iterations that are timed together.")
    if options.variant:
        alone(options.cases[0], options.variant, options.iterations)
    else:
        main(options.cases, options.iterations, options.write)
