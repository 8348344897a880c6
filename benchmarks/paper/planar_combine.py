"""Short fits of the planar robot with four goals, each of which lacks modes, put together.

Run: python benchmarks/paper/planar_combine.py [--components 100] [--iterations 200] [--write results]

Each fit starts from components drawn from the paper's initial region and stops long before it has converged.
Seeds are tried from 0 on; a fit that has all modes is left out, until there are five that lack some.
`natmix.combine` puts them together without evaluating the target. ELBOs are estimated from fresh
samples. A mode is one of the eight paths to the goals; it is found if its components have 0.1% of the weight
(`natmix.experiments.problems.planar_robot`).
"""

import argparse
import datetime
import subprocess
import time
from pathlib import Path

import jax

import natmix
from natmix.diagnostics.elbo import estimate_elbo
from natmix.experiments.presets.paper import paper
from natmix.experiments.problems import load
from natmix.kernels.compilation_cache import use_compilation_cache

NAME = "planar_robot_4"
MODES = 8
MOST_SEEDS = 50


def short_fit(seed: int, components: int, iterations: int) -> natmix.Result:
    """The defaults of `fit` from the paper's initial region."""
    problem = load(NAME, seed=seed)
    region = paper("SAMTRON", NAME).start(problem.target.dim)
    start, _ = region.mixture(jax.random.key(seed), components, jax.numpy.asarray(0.0).dtype)
    return natmix.fit(
        problem.target, init_mixture=start, seed=seed, max_iterations=iterations, progress=False
    )


def modes_found(result: natmix.Result) -> int:
    """How many of the eight paths the mixture has."""
    return int(load(NAME).secondary["detected_modes"](result.mixture, jax.random.key(0)))


def incomplete_fits(number: int, components: int, iterations: int) -> dict[int, natmix.Result]:
    """The first fits that lack a mode, by seed."""
    fits: dict[int, natmix.Result] = {}
    for seed in range(MOST_SEEDS):
        one = short_fit(seed, components, iterations)
        print(f"seed {seed}: {modes_found(one)} modes, {one}", flush=True)
        if modes_found(one) < MODES:
            fits[seed] = one
        if len(fits) == number:
            break
    return fits


def described(name: str, result: natmix.Result, samples: int) -> list[str]:
    """A line of the table."""
    problem = load(NAME)
    elbo = estimate_elbo(result.mixture, problem.target, jax.random.key(1000), samples)
    verdict = result.diagnose(search=0, explore=0).verdict
    minus = natmix.Estimate(-elbo.value, elbo.standard_error)
    return [
        name,
        f"{modes_found(result)} of {MODES}",
        str(minus),
        str(result.mixture.num_components),
        f"{result.counts.evaluations:,}",
        str(len(result.draws)),
        verdict,
    ]


def table(fits: dict[int, natmix.Result], combined: natmix.Result, samples: int) -> str:
    """The fits and the combined result."""
    header = ("fit", "modes", "-ELBO", "components", "evaluations", "samples kept", "verdict by samples")
    lines = [described(f"seed {seed}", one, samples) for seed, one in fits.items()]
    rule = ["---", *["---:"] * (len(header) - 2), "---"]
    every = (header, rule, *lines, described("**combined**", combined, samples))
    return "\n".join("| " + " | ".join(line) + " |" for line in every)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fits", type=int, default=5, help="that lack a mode")
    parser.add_argument("--components", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--samples", type=int, default=50_000, help="for the ELBOs of the table")
    parser.add_argument("--write", type=Path, help="a folder for planar_combine.md")
    options = parser.parse_args()
    use_compilation_cache()
    fits = incomplete_fits(options.fits, options.components, options.iterations)
    before = time.perf_counter()
    combined = natmix.combine(list(fits.values()))
    seconds = time.perf_counter() - before
    text = table(fits, combined, options.samples)
    print(text)
    if options.write:
        command = (
            f"python benchmarks/paper/planar_combine.py --fits {options.fits} "
            f"--components {options.components} --iterations {options.iterations}"
        )
        git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        made = f"{datetime.date.today().isoformat()}, commit {git.stdout.strip()}, `{command}`."
        explained = (
            f"The first short fits of {NAME} that lack a mode, put together by `natmix.combine` in "
            f"{seconds:.1f} s without evaluating the target. ELBOs are from {options.samples:,} fresh "
            "samples."
        )
        (options.write / "planar_combine.md").write_text(
            f"# Fits put together\n\n{explained}\n\n{made}\n\n{text}\n"
        )


if __name__ == "__main__":
    main()
