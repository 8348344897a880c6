"""The entropy of the mixture."""

from natmix.array_types import KeyLike
from natmix.estimate import Estimate, mean_estimate
from natmix.mixture import Mixture


def entropy(mixture: Mixture, key: KeyLike, samples: int = 2000) -> Estimate:
    """H(q) = -E_q[log q(x)], from samples of the mixture; exact for a single Gaussian."""
    if mixture.num_components == 1:
        return mixture.entropy()
    if samples < 1:
        raise ValueError(f"An estimate needs at least one sample, got {samples}.")
    return mean_estimate(-mixture.log_prob(mixture.sample(samples, key=key)))
