"""The negative evidence lower bound."""

from typing import NamedTuple

from natmix.array_types import KeyLike
from natmix.diagnostics.elbo import estimate_elbo
from natmix.experiments.metrics.base import Measured, Metric
from natmix.mixture import Mixture
from natmix.random_keys import as_key
from natmix.targets import AbstractTarget


class NegElbo(NamedTuple):
    """An estimate of -ELBO.

    Attributes:
        value: +inf if the target's density is zero at a sample.
        standard_error: of the mean over the samples with a positive density.
        zero_share: share of samples with log density -inf.
        invalid_share: share of samples with log density NaN or +inf; they are left out.
    """

    value: float
    standard_error: float
    zero_share: float
    invalid_share: float


def neg_elbo(mixture: Mixture, target: AbstractTarget, key: KeyLike, samples: int = 2000) -> NegElbo:
    """-ELBO = E_q[log q(x) - log p~(x)] = KL(q || p) - log Z (Eq. 1), from samples of the mixture."""
    if samples < 1:
        raise ValueError(f"An estimate needs at least one sample, got {samples}.")
    elbo = estimate_elbo(mixture, target, as_key(key), samples)
    return NegElbo(-elbo.value, elbo.standard_error, elbo.zero_share, elbo.invalid_share)


def _measure(at: Measured) -> dict[str, float]:
    elbo = neg_elbo(at.mixture, at.problem.reference, at.key, at.samples)
    return {
        "neg_elbo": elbo.value,
        "neg_elbo_se": elbo.standard_error,
        "zero_share": elbo.zero_share,
        "invalid_share": elbo.invalid_share,
    }


NEG_ELBO = Metric(("neg_elbo", "zero_share", "invalid_share"), _measure)
