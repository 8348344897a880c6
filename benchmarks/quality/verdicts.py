"""Verdicts on fits whose quality is known: by the mixture's own samples, and with chains.

Run: python benchmarks/quality/verdicts.py [--seeds 6] [--chains 1000]

Each mixture is judged several times, with other samples each time: by these alone, with so many short chains
(those that `result.diagnose()` starts by itself after a long fit), and with as many long ones
(``explore=1000``). "Error of log Z" is that of importance sampling, in its own standard errors: a correction
that works has one of about 1. `chain_numbers.py` has fewer chains and more sound fits.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from posteriors.catalogue import PROBLEMS
from scipy.special import gammaln

import natmix
from natmix import JaxTarget, Mixture
from natmix.diagnostics import diagnose, explore
from natmix.diagnostics.elbo import evaluated_draws
from natmix.diagnostics.exploration import SHORT_CHAIN_STEPS
from natmix.kernels.compilation_cache import use_compilation_cache
from natmix.targets import AbstractTarget

LOG_2PI = np.log(2 * np.pi)
SAMPLES = 2000


class Case(NamedTuple):
    """A mixture, its target, the true log evidence, and how the fit ended."""

    name: str
    mixture: Mixture
    target: AbstractTarget
    log_z: float
    stopped: str = "converged"


def cauchy(x: Array) -> Array:
    """In five dimensions."""
    return -3.0 * jnp.log1p(jnp.sum(x**2))


def five_cauchies(x: Array) -> Array:
    """Independent ones."""
    return -jnp.sum(jnp.log1p(x**2))


def funnel(x: Array) -> Array:
    """Neal's."""
    others = x.size - 1
    return -0.5 * x[0] ** 2 / 9 - 0.5 * jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) - 0.5 * others * x[0]


def _gaussians(scale: float, means: list[list[float]], weights: list[float]) -> Mixture:
    D = len(means[0])
    return Mixture.full(weights, np.array(means), np.stack([scale**2 * np.eye(D)] * len(means)))


def cases() -> Iterator[Case]:
    """Wrong on purpose, then fits."""
    means, weights = [[-4.0, 0, 0], [4, 1, 0]], [0.3, 0.7]
    two = _gaussians(1.0, means, weights)  # type: ignore[arg-type]
    target = JaxTarget(two.log_prob, 3)
    for scale in (1.0, 0.95, 1.05, 1.3, 0.8, 0.5):
        yield Case(
            "two modes, exact" if scale == 1 else f"two modes, {scale:g} times as wide",
            _gaussians(scale, means, weights),  # type: ignore[arg-type]
            target,
            0.0,
        )
    yield Case("two modes, wrong shares", _gaussians(1.0, means, [0.6, 0.4]), target, 0.0)  # type: ignore[arg-type]
    ten = [[0.0] * 10]
    unit = JaxTarget(_gaussians(1.0, ten, [1.0]).log_prob, 10)
    yield Case("ten dimensions, 1.4 times as wide", _gaussians(1.4, ten, [1.0]), unit, 0.0)
    normaliser = 0.5 * (LOG_2PI + np.log(9))
    short = (
        ("Cauchy, 5-d", cauchy, 5, 3 * np.log(np.pi) - gammaln(3)),
        ("five Cauchies", five_cauchies, 5, 5 * np.log(np.pi)),
        ("funnel, 5-d", funnel, 5, normaliser + 2 * LOG_2PI),
        ("funnel, 10-d", funnel, 10, normaliser + 4.5 * LOG_2PI),
    )
    for name, fn, dim, log_z in short:
        found = natmix.fit(fn, dim, max_evaluations=20_000, progress=False)
        assert found.target is not None
        yield Case(f"{name}, 20,000 evaluations", found.mixture, found.target, float(log_z), found.stopped)
    for name in ("schools_centred", "schools_non_centred"):
        problem = PROBLEMS[name]()
        found = natmix.fit(problem.model, model_kwargs=problem.kwargs, progress=False)
        assert found.target is not None
        yield Case(name, found.mixture, found.target, problem.truth(problem).log_evidence, found.stopped)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--chains", type=int, default=1000)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    use_compilation_cache()
    print(
        "| fit | error of log Z | by samples | short chains | uncovered mass, by long chains | long chains |"
    )
    print("|---|---:|---|---|---:|---|")
    for case in cases():
        print(_row(case, options.seeds, options.chains), flush=True)


def _row(case: Case, seeds: int, chains: int) -> str:
    errors, uncovered = [], []
    alone: Counter[str] = Counter()
    brief: Counter[str] = Counter()
    explored: Counter[str] = Counter()
    for seed in range(seeds):
        draws = evaluated_draws(case.mixture, case.target, jax.random.key(seed), SAMPLES)
        first = diagnose(case.mixture, draws, stopped=case.stopped)
        off = first.log_evidence.value - case.log_z
        # A perfect mixture has no error at all: that of rounding does not count.
        errors.append(off / max(first.log_evidence.standard_error, 1e-6))
        key = jax.random.key(seed + 1000)
        short = explore(case.mixture, case.target, draws, key, chains, SHORT_CHAIN_STEPS)
        found = explore(case.mixture, case.target, draws, key, chains)
        uncovered.append(found.uncovered.value)
        alone[first.verdict] += 1
        brief[diagnose(case.mixture, draws, None, short, case.stopped).verdict] += 1
        explored[diagnose(case.mixture, draws, None, found, case.stopped).verdict] += 1
    cells = (
        case.name,
        f"{np.mean(errors):+.1f}",
        _counts(alone),
        _counts(brief),
        f"{np.mean(uncovered):.2%}",
        _counts(explored),
    )
    return "| " + " | ".join(cells) + " |"


def _counts(verdicts: Counter[str]) -> str:
    return ", ".join(f"{n} {name}" for name, n in verdicts.most_common())


if __name__ == "__main__":
    main()
