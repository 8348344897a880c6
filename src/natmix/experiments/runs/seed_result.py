"""The result of one seed of a run, as `natmix.fit` returns one: for a verdict and a report."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natmix.diagnostics.elbo import Elbo, elbo_of, evaluated_draws
from natmix.experiments.problems import load
from natmix.experiments.runs.config import algorithm_from
from natmix.experiments.runs.loading import Run, SeedRun
from natmix.result.result import Counts, Result, Timings

_SAME = {"max_run_seconds": "max_seconds"}
"""What ends a seed alone, by what ends a fit likewise."""
_KEY = 2**31 + 1
"""Of the samples; a run uses 2**31 and below."""


def seed_result(run: Run, seed: SeedRun, samples: int) -> tuple[Result, str]:
    """The mixture of a finished seed with fresh samples, and why there are none (empty if there are some).

    Args:
        run: that the seed belongs to.
        seed: a finished one.
        samples: of the mixture, at which the problem's target is evaluated.
    """
    final = seed.final
    if final is None:
        raise ValueError(f"Seed {seed.seed} of {run.path} has not finished; repeat `natmix run` to go on.")
    trace = dict(seed.trace)
    if trace:
        trace["total_evaluations"] = np.cumsum(np.asarray(trace["evaluations"], np.int64))
    target, draws, missing = None, None, ""
    try:
        config = run.config
        options = config["problem"]["options"]
        target = load(run.problem, seed=seed.seed, dtype=jnp.dtype(config["dtype"]), **options).reference
    except (ImportError, OSError, ValueError) as error:
        missing = f"{str(error).rstrip('.')}."
    else:
        key = jax.random.fold_in(jax.random.key(seed.seed), _KEY)
        draws = evaluated_draws(seed.mixture, target, key, samples)
    algorithm = algorithm_from(run.config)
    result = Result(
        mixture=seed.mixture,
        elbo=_stored_elbo(final) if draws is None else elbo_of(draws),
        trajectory=trace,
        counts=_counts(final, trace, 0 if draws is None else samples),
        timings=Timings(
            compilation=final["compile_seconds"],
            iterations=final["seconds"] - final["compile_seconds"],
            elbo=0.0,
            total=final["seconds"],
        ),
        stopped=_SAME.get(final["stopped"], final["stopped"]),
        algorithm=algorithm,
        settings=_settings(run, seed.seed, algorithm.settings()),
        notes=(),
        draws=draws,
        target=target,
    )
    return result, missing


def _stored_elbo(final: dict[str, Any]) -> Elbo:
    value = -final["neg_elbo"]
    shares = final["zero_share"], final["invalid_share"]
    return Elbo(value, final["neg_elbo_se"], value, *shares, samples=0)


def _counts(final: dict[str, Any], trace: dict[str, np.ndarray], samples: int) -> Counts:
    def total(name: str) -> int:
        return int(np.asarray(trace.get(name, 0), np.int64).sum())

    return Counts(
        iterations=final["iterations"],
        training_evaluations=final["evaluations"],
        elbo_evaluations=samples,
        probe_evaluations=0,
        start_evaluations=0,
        zeros=total("zeros"),
        invalid=total("invalid"),
        failed_updates=total("failed_updates"),
        added=total("added"),
        deleted=total("deleted"),
        left_out=final["left_out"],
    )


def _settings(run: Run, seed: int, algorithm: dict[str, Any]) -> dict[str, Any]:
    config = run.config
    kept = {name: config[name] for name in ("problem", "preset", "start", "covariance", "dtype", "limits")}
    return {"algorithm": algorithm, "seed": seed, "dim": len(config["start"]["mean"]), **kept}
