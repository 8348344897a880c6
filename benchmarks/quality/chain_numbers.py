"""How many short chains see what: verdicts on fits of known quality, by the number of chains.

Run: python benchmarks/quality/chain_numbers.py --fits FOLDER [--judgements 40] [--chains 100 200 400 1000]

Fits that are not in the folder are made and saved there. Each is judged several times, with other samples
and chains each time, by chains as `result.diagnose()` starts them by itself. A cell counts the judgements in
which they found mass that the mixture does not cover: all should, for the centred eight schools, and none
for the others. "By default": the number of chains that the fit's own evaluations pay for, and its verdict.
"""

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from posteriors.catalogue import PROBLEMS

import natmix
from natmix import JaxTarget, Result
from natmix.diagnostics import diagnose, explore
from natmix.diagnostics.elbo import evaluated_draws
from natmix.diagnostics.exploration import SHORT_CHAIN_STEPS
from natmix.experiments import problems
from natmix.kernels.compilation_cache import use_compilation_cache
from natmix.result.diagnosing import diagnostic_budget

SAMPLES = 2000


class Fit(NamedTuple):
    """A problem, a seed, a limit, and whether chains get gradients."""

    name: str
    seed: int = 0
    max_evaluations: int | None = 1_000_000
    gradients: bool = True

    @property
    def title(self) -> str:
        """For the table."""
        limit = "" if self.max_evaluations is None else f", at most {self.max_evaluations:,} evaluations"
        return f"{self.name}, seed {self.seed}{limit}{'' if self.gradients else ', chains without gradients'}"


FITS = (
    *(Fit("schools_centred", seed, None) for seed in (0, 1, 2, 4)),
    Fit("schools_centred", 3, 400_000),
    Fit("schools_centred", 1, None, gradients=False),
    Fit("schools_non_centred", 0, None),
    Fit("schools_non_centred", 1, None),
    Fit("schools_non_centred", 2, 400_000),
    Fit("schools_non_centred", 2, 400_000, gradients=False),
    *(Fit(name) for name in ("two_gaussians", "squared_regression", "german_credit")),
    *(Fit(name) for name in ("gaussian", "gmm10", "stm10", "stm20")),
)


def gaussian(x: Array) -> Array:
    """Ten correlated dimensions."""
    A = np.random.default_rng(0).normal(size=(10, 10))
    return -0.5 * x @ jnp.asarray(np.linalg.inv(A @ A.T + 0.1 * np.eye(10))) @ x


def made(fit: Fit, folder: Path) -> Result:
    """From the folder, or new."""
    path = folder / f"{fit.name}-{fit.seed}.safetensors"
    target, options = _target(fit.name)
    if not path.exists():
        scale = {} if fit.name in PROBLEMS else {"init_scale": 3.0 if fit.name == "gaussian" else 10.0}
        dim = 10 if fit.name == "gaussian" else None
        fresh = natmix.fit(
            target,
            dim,
            seed=fit.seed,
            max_evaluations=fit.max_evaluations,
            progress=False,
            **scale,  # type: ignore[arg-type]
            **options,
        )
        fresh.save(path)
    result = Result.load(path, target, **options)
    if fit.gradients:
        return result
    assert isinstance(result.target, JaxTarget)
    return dataclasses.replace(result, target=dataclasses.replace(result.target, values_only=True))


def _target(name: str) -> tuple[Any, dict[str, Any]]:
    if name in PROBLEMS:
        problem = PROBLEMS[name]()
        return problem.model, {"model_kwargs": problem.kwargs}
    return (gaussian if name == "gaussian" else problems.load(name).target), {}


def _row(fit: Fit, result: Result, chains: list[int], seeds: range) -> str:
    assert result.target is not None
    flagged = dict.fromkeys(chains, 0)
    samples = 0
    for seed in seeds:
        draws = evaluated_draws(result.mixture, result.target, jax.random.key(seed + 10), SAMPLES)
        samples += diagnose(result.mixture, draws, stopped=result.stopped).verdict == "unsearched"
        for n in chains:
            key = jax.random.key(seed + 1000)
            found = explore(result.mixture, result.target, draws, key, n, SHORT_CHAIN_STEPS)
            flagged[n] += found.significant
    first = result.diagnose(explore=0)
    started = time.perf_counter()
    verdict = result.diagnose().verdict
    seconds = time.perf_counter() - started
    cells = (
        fit.title,
        f"{result.counts.evaluations:,}",
        f"{first.gap.value:.3f}",
        f"{samples} of {len(seeds)}",
        *(str(flagged[n]) for n in chains),
        f"{diagnostic_budget(result).chains()[0]} chains, {verdict}, {seconds:.1f} s",
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fits", type=Path, required=True, help="folder for the fits")
    parser.add_argument("--judgements", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first judgement, for others")
    parser.add_argument("--chains", type=int, nargs="+", default=[100, 200, 400, 1000])
    parser.add_argument("--only", default="", help="fits whose name contains this")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    use_compilation_cache()
    options.fits.mkdir(parents=True, exist_ok=True)
    columns = "".join(f" {n} |" for n in options.chains)
    print(f"| fit | evaluations | KL by samples | trust by samples |{columns} by default |")
    print("|---|---:|---:|---:|" + "---:|" * len(options.chains) + "---|")
    for fit in FITS:
        if options.only in fit.name:
            seeds = range(options.first, options.first + options.judgements)
            print(_row(fit, made(fit, options.fits), options.chains, seeds), flush=True)


if __name__ == "__main__":
    main()
