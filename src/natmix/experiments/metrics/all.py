"""All metrics of a mixture at the end of a run."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.array_types import KeyLike, PRNGKey
from natmix.experiments.metrics.effective_sample_size import forward_effective_sample_size
from natmix.experiments.metrics.entropy import entropy
from natmix.experiments.metrics.evidence_upper_bound import evidence_upper_bound
from natmix.experiments.metrics.log_evidence import log_evidence
from natmix.experiments.metrics.neg_elbo import neg_elbo
from natmix.experiments.metrics.sliced_wasserstein import sliced_wasserstein
from natmix.experiments.references import load_for
from natmix.mixture import Mixture
from natmix.random_keys import as_key

if TYPE_CHECKING:
    from natmix.experiments.problems.base import Problem


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

    From samples of the mixture: ``neg_elbo`` with ``zero_share`` and ``invalid_share``, ``entropy``,
    ``log_evidence``, ``reverse_ess``. From samples of the target, if the problem has a sampler or
    reference samples were made: ``forward_ess``, ``eubo``, ``sliced_wasserstein``. And the problem's own.
    A metric whose file is missing, or that is infinite, is listed in ``missing`` with the reason.
    """
    keys = jax.random.split(as_key(key), 4)
    mixture = _padded(mixture)
    values = _from_mixture(problem, mixture, keys[0], samples)
    missing: dict[str, str] = {}
    try:
        target_samples = _target_samples(problem, keys[1], samples)
    except FileNotFoundError as error:
        missing |= dict.fromkeys(_FROM_TARGET, str(error))
    else:
        if target_samples is not None:
            values |= _from_target(problem, mixture, keys[2], target_samples)
    for number, (name, metric) in enumerate(problem.secondary.items()):
        try:
            values[name] = float(metric(mixture, jax.random.fold_in(keys[3], number)))
        except FileNotFoundError as error:
            missing[name] = str(error)
    for name, reason in problem.infinite.items():
        missing[name] = reason
        values = {k: v for k, v in values.items() if k not in (name, f"{name}_se")}
    return Metrics(values, missing)


_FROM_TARGET = ("eubo", "forward_ess", "sliced_wasserstein")


def _from_mixture(problem: "Problem", mixture: Mixture, key: PRNGKey, samples: int) -> dict[str, float]:
    # The same samples for all metrics (the others split their key), and programs compiled once.
    elbo = neg_elbo(mixture, problem.reference, key, samples)
    evidence = log_evidence(mixture, problem.reference, key, samples)
    spread = entropy(mixture, jax.random.split(key)[0], samples)
    return {
        "neg_elbo": elbo.value,
        "neg_elbo_se": elbo.standard_error,
        "zero_share": elbo.zero_share,
        "invalid_share": elbo.invalid_share,
        "entropy": spread.value,
        "entropy_se": spread.standard_error,
        "log_evidence": evidence.value,
        "log_evidence_se": evidence.standard_error,
        "reverse_ess": evidence.effective_sample_size,
    }


def _from_target(
    problem: "Problem", mixture: Mixture, key: PRNGKey, samples: Float[np.ndarray, "N D"]
) -> dict[str, float]:
    key_x, key_slices = jax.random.split(key)
    bound = evidence_upper_bound(mixture, problem.reference, samples)
    x = mixture.sample(len(samples), key=key_x)
    return {
        "eubo": bound.value,
        "eubo_se": bound.standard_error,
        "forward_ess": forward_effective_sample_size(mixture, problem.reference, samples),
        "sliced_wasserstein": sliced_wasserstein(np.asarray(x), samples, key_slices),
    }


def _padded(mixture: Mixture) -> Mixture:
    """Padded with absent components to a power of two, so that similar mixtures share compiled programs."""
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
