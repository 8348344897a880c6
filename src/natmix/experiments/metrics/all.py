"""All metrics of a mixture at the end of a run."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.array_types import KeyLike, PRNGKey
from natmix.experiments.metrics.base import Measured, Metric
from natmix.experiments.metrics.effective_sample_size import FORWARD_ESS
from natmix.experiments.metrics.entropy import ENTROPY
from natmix.experiments.metrics.evidence_upper_bound import EUBO
from natmix.experiments.metrics.log_evidence import LOG_EVIDENCE
from natmix.experiments.metrics.neg_elbo import NEG_ELBO
from natmix.experiments.metrics.sliced_wasserstein import SLICED_WASSERSTEIN
from natmix.experiments.references import load_for
from natmix.mixture import Mixture
from natmix.random_keys import as_key

if TYPE_CHECKING:
    from natmix.experiments.problems.base import Problem


METRICS: dict[str, Metric] = {}
"""Measured at the end of every run, in this order; by the name of their first number."""


def register(metric: Metric) -> Metric:
    """Measure this metric at the end of every run.

    Raises:
        ValueError: another metric has a number of this name.
    """
    for other in METRICS.values():
        shared = [name for name in metric.names if name in other.names]
        if shared and other is not metric:
            raise ValueError(f"There is a metric {shared[0]!r} already: choose another name.")
    METRICS[metric.names[0]] = metric
    return metric


for _metric in (NEG_ELBO, ENTROPY, LOG_EVIDENCE, EUBO, FORWARD_ESS, SLICED_WASSERSTEIN):
    register(_metric)


class Metrics(dict[str, float]):
    """Numbers by name.

    Attributes:
        missing: why a metric of this problem is not available, by name.
    """

    def __init__(self, values: dict[str, float], missing: dict[str, str]) -> None:
        super().__init__(values)
        self.missing = missing


def all_metrics(problem: "Problem", mixture: Mixture, key: KeyLike, samples: int = 2000) -> Metrics:
    """All metrics that are available, each with its standard error if it has one (``_se``).

    Those of `METRICS`, and the problem's own. From samples of the mixture: ``neg_elbo`` with ``zero_share``
    and ``invalid_share``, ``entropy``, ``log_evidence``, ``reverse_ess``. From samples of the target, if the
    problem has a sampler or reference samples were made: ``eubo``, ``forward_ess``, ``sliced_wasserstein``.
    A metric whose file is missing, or that is infinite, is listed in ``missing`` with the reason.
    """
    keys = jax.random.split(as_key(key), 4)
    at = Measured(problem, padded_mixture(mixture), keys[0], samples)
    values: dict[str, float] = {}
    for metric in METRICS.values():
        if not metric.needs_target_samples:
            values |= metric.measure(at)
    of_target = [metric for metric in METRICS.values() if metric.needs_target_samples]
    missing: dict[str, str] = {}
    try:
        target_samples = _target_samples(problem, keys[1], samples)
    except FileNotFoundError as error:
        missing |= {name: str(error) for metric in of_target for name in metric.names}
    else:
        if target_samples is not None:
            for metric in of_target:
                values |= metric.measure(at._replace(key=keys[2], target_samples=target_samples))
    for number, (name, secondary) in enumerate(problem.secondary.items()):
        try:
            values[name] = float(secondary(at.mixture, jax.random.fold_in(keys[3], number)))
        except FileNotFoundError as error:
            missing[name] = str(error)
    for name, reason in problem.infinite.items():
        missing[name] = reason
        values = {k: v for k, v in values.items() if k not in (name, f"{name}_se")}
    return Metrics(values, missing)


def padded_mixture(mixture: Mixture) -> Mixture:
    """The mixture, padded with absent components to a power of two: similar mixtures share programs."""
    K = mixture.num_components
    extra = 2 ** (K - 1).bit_length() - K
    index = jnp.concatenate([jnp.arange(K), jnp.zeros(extra, int)])
    log_weights = jnp.pad(mixture.log_weights, (0, extra), constant_values=-jnp.inf)
    return Mixture(log_weights, mixture.components.take(index))


def _target_samples(problem: "Problem", key: PRNGKey, samples: int) -> Float[np.ndarray, "N D"] | None:
    if problem.sample is not None:
        return np.asarray(problem.sample(samples, key=key))
    reference = load_for(problem)
    return None if reference is None else reference.samples[:samples]
