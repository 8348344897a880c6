"""Short fits of the planar robot with four goals, each of which lacks modes, put together.

Run: python benchmarks/paper/planar_combine.py [--seeds 5] [--components 40] [--iterations 200] [--write results]

Each fit starts with few components, drawn from the paper's initial region, and stops long before it has
converged. `natmix.combine` puts them together without evaluating the target. ELBOs are estimated from fresh
samples. A mode is one of the eight paths to the goals; it is found if its components have 0.1% of the weight
(`natmix.experiments.problems.planar_robot`).
"""

import argparse
import datetime
import time
from collections.abc import Sequence
from pathlib import Path

import jax
from case_table import commit, markdown

import natmix
from natmix.cli.compilation_cache import use_compilation_cache
from natmix.diagnostics.elbo import estimate_elbo
from natmix.experiments.presets.paper import paper
from natmix.experiments.problems import load

NAME = "planar_robot_4"
MODES = 8


def short_fit(seed: int, components: int, iterations: int) -> natmix.Result:
    """The defaults of `fit` from the paper's initial region."""
    problem = load(NAME, seed=seed)
    region = paper("SAMTRON", NAME).start(problem.target.dim)
    start, _ = region.mixture(jax.random.key(seed), components, jax.numpy.asarray(0.0).dtype)
    return natmix.fit(
        problem.target, init_mixture=start, seed=seed, max_iterations=iterations, progress=False
    )


def described(name: str, result: natmix.Result, samples: int) -> list[str]:
    """A line of the table."""
    problem = load(NAME)
    found = int(problem.secondary["detected_modes"](result.mixture, jax.random.key(0)))
    elbo = estimate_elbo(result.mixture, problem.target, jax.random.key(1000), samples)
    verdict = result.diagnose(search=0, explore=0).verdict
    minus = natmix.Estimate(-elbo.value, elbo.standard_error)
    return [
        name,
        f"{found} of {MODES}",
        str(minus),
        str(result.mixture.num_components),
        f"{result.counts.evaluations:,}",
        str(len(result.draws)),
        verdict,
    ]


def table(fits: Sequence[natmix.Result], combined: natmix.Result, samples: int) -> str:
    """The fits and the combined result."""
    header = ("fit", "modes", "-ELBO", "components", "evaluations", "samples kept", "verdict by samples")
    lines = [described(f"seed {seed}", one, samples) for seed, one in enumerate(fits)]
    return markdown(header, [*lines, described("**combined**", combined, samples)])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--components", type=int, default=40)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--samples", type=int, default=50_000, help="for the ELBOs of the table")
    parser.add_argument("--write", type=Path, help="a folder for planar_combine.md")
    options = parser.parse_args()
    use_compilation_cache()
    fits = []
    for seed in range(options.seeds):
        fits.append(short_fit(seed, options.components, options.iterations))
        print(f"seed {seed}: {fits[-1]}", flush=True)
    before = time.perf_counter()
    combined = natmix.combine(fits)
    seconds = time.perf_counter() - before
    text = table(fits, combined, options.samples)
    print(text)
    if options.write:
        command = (
            f"python benchmarks/paper/planar_combine.py --seeds {options.seeds} "
            f"--components {options.components} --iterations {options.iterations}"
        )
        made = f"{datetime.date.today().isoformat()}, commit {commit()}, `{command}`."
        explained = (
            f"Short fits of {NAME}, put together by `natmix.combine` in {seconds:.1f} s without evaluating the "
            f"target. ELBOs are from {options.samples:,} fresh samples."
        )
        (options.write / "planar_combine.md").write_text(
            f"# Fits put together\n\n{explained}\n\n{made}\n\n{text}\n"
        )


if __name__ == "__main__":
    main()
