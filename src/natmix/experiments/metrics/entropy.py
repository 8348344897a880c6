"""The entropy of the mixture."""

import jax

from natmix.array_types import KeyLike
from natmix.estimate import Estimate, mean_estimate
from natmix.experiments.metrics.base import Measured, Metric
from natmix.mixture import Mixture


def entropy(mixture: Mixture, key: KeyLike, samples: int = 2000) -> Estimate:
    """H(q) = -E_q[log q(x)], from samples of the mixture; exact for a single Gaussian."""
    if mixture.num_components == 1:
        return mixture.entropy()
    if samples < 1:
        raise ValueError(f"An estimate needs at least one sample, got {samples}.")
    return mean_estimate(-mixture.log_prob(mixture.sample(samples, key=key)))


def _measure(at: Measured) -> dict[str, float]:
    # The same samples as those of the metrics that split their key, and programs compiled for them once.
    found = entropy(at.mixture, jax.random.split(at.key)[0], at.samples)
    return {"entropy": found.value, "entropy_se": found.standard_error}


ENTROPY = Metric(("entropy",), _measure)
