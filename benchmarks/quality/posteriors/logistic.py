"""The logistic regressions of `natmix.experiments.problems` as NumPyro models."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from natmix.experiments import references
from natmix.experiments.problems import load
from natmix.experiments.problems.logistic_regression import LOG_EVIDENCE, PRIOR_STD
from posteriors.problem import Problem, Truth


def model(signed: np.ndarray) -> None:
    """Every row's features times the sign of its label."""
    w = numpyro.sample("w", dist.Normal(0, PRIOR_STD).expand([signed.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(signed)):
        numpyro.sample("label", dist.Bernoulli(logits=signed @ w), obs=jnp.ones(len(signed)))


def truth(problem: Problem) -> Truth:
    """From the reference samples of `natmix references`, made if they are not there."""
    try:
        reference = references.load(problem.name)
    except FileNotFoundError:
        reference = references.generate(problem.name)
    x, info = reference.samples, reference.info
    worst = max(info["r_hat"])
    value, error = LOG_EVIDENCE[problem.name]
    source = (
        f"NUTS, {info['draws']:,} draws of which {len(x):,} kept, R-hat at most {worst:.4f}, "
        f"{info['divergences']} divergences; bridge sampling"
    )
    mean_error = 1 / np.sqrt(min(info["thinned_effective_sample_size"]))
    return Truth(x.mean(axis=0), x.std(axis=0, ddof=1), float(mean_error), value, error, source)


def logistic(name: str, title: str) -> Problem:
    """One of the data sets."""
    signed = load(name, dtype=np.float64).target.fn.signed  # type: ignore[attr-defined]
    return Problem(name, title, model, {"signed": np.asarray(signed)}, ("w",), truth)
