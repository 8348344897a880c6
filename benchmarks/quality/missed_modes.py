"""The search for missed modes: what it finds at which distance, and whether it refuses sound fits.

Run: python benchmarks/quality/missed_modes.py [--seeds 8] [--evaluations 60000]

First two equal Gaussians as wide as the initial region, the mixture being one of them: in how many of the
searches of 32 L-BFGS runs the other was found. Then fits of targets whose modes the fit has: in how many of
the searches one was called missed, and what a search costs.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from posteriors.catalogue import PROBLEMS

import natmix
from natmix import JaxTarget, Mixture
from natmix.diagnostics import SearchProblem, search_modes

RUNS = 32


def banana(x: Array) -> Array:
    """In two dimensions."""
    return -0.5 * x[0] ** 2 - 0.5 * (x[1] - x[0] ** 2) ** 2 / 0.25


def student(x: Array) -> Array:
    """Student's t with 5 degrees of freedom."""
    return -0.5 * (5 + x.size) * jnp.log1p(jnp.sum(x**2) / 5)


def gaussian(dim: int) -> Callable[[Array], Array]:
    """A correlated one."""
    root = np.random.default_rng(dim).normal(size=(dim, dim))
    precision = np.linalg.inv(root @ root.T / dim + 0.1 * np.eye(dim))
    return lambda x: -0.5 * x @ precision @ x


def logistic(dim: int) -> Callable[[Array], Array]:
    """A regression with 300 made-up rows."""
    rng = np.random.default_rng(dim)
    inputs, truth = rng.normal(size=(300, dim)), rng.normal(size=dim)
    labels = (rng.uniform(size=300) < 1 / (1 + np.exp(-inputs @ truth))).astype(float)

    def log_density(x: Array) -> Array:
        odds = inputs @ x
        return jnp.sum(labels * odds - jnp.logaddexp(0, odds)) - 0.05 * jnp.sum(x**2)

    return log_density


def cases() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Name, target, arguments of `natmix.fit`."""
    yield "gaussian, 5-d", gaussian(5), {"dim": 5}
    yield "gaussian, 30-d", gaussian(30), {"dim": 30}
    yield "logistic regression, 25-d", logistic(25), {"dim": 25}
    yield "banana", banana, {"dim": 2}
    yield "student, 5-d", student, {"dim": 5}
    for name in ("schools_non_centred", "two_gaussians", "squared_regression"):
        problem = PROBLEMS[name]()
        yield f"`{name}`", problem.model, {"model_kwargs": problem.kwargs}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--evaluations", type=int, default=60_000)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print("| distance | 2-d | 10-d |\n|---:|---:|---:|")
    for distance in (30, 50, 100, 200, 500):
        found = [_found(dim, distance, options.seeds) for dim in (2, 10)]
        print(f"| {distance} | " + " | ".join(f"{n} of {options.seeds}" for n in found) + " |", flush=True)
    print("\n| fit | by samples | called missed | evaluations | seconds, first and later |")
    print("|---|---|---:|---:|---:|")
    for name, target, arguments in cases():
        result = natmix.fit(target, max_evaluations=options.evaluations, progress=False, **arguments)
        verdict = result.diagnose(search=0, explore=0).verdict
        searches, seconds = [], []
        for seed in range(options.seeds):
            before = time.process_time()
            searches.append(result.diagnose(search=RUNS, explore=0, seed=seed).mode_search)
            seconds.append(time.process_time() - before)
        alarms = sum(bool(h.missed) for h in searches if h is not None)
        evaluations = np.median([h.evaluations for h in searches if h is not None])
        print(
            f"| {name} | {verdict} | {alarms} of {options.seeds} | {evaluations:,.0f} | "
            f"{seconds[0]:.1f}, {np.median(seconds[1:]):.1f} |",
            flush=True,
        )


def _found(dim: int, distance: float, seeds: int) -> int:
    direction = np.random.default_rng(dim).normal(size=dim)
    away = jnp.asarray(distance * direction / np.linalg.norm(direction))
    one = Mixture.full([1.0], np.zeros((1, dim)), np.eye(dim)[None])
    target = JaxTarget(lambda x: jnp.logaddexp(one.log_prob(x), one.log_prob(x - away)), dim)
    problems = [SearchProblem(one, target, one, 0.0, jax.random.key(s)) for s in range(seeds)]
    return sum(bool(search_modes(problem, RUNS).missed) for problem in problems)


if __name__ == "__main__":
    main()
