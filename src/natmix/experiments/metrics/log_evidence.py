"""The log evidence by importance sampling."""

from typing import NamedTuple

import numpy as np

from natmix.array_types import KeyLike
from natmix.diagnostics.psis import log_mean_exp, relative_ess
from natmix.experiments.metrics.base import Measured, Metric
from natmix.experiments.metrics.ratios import at_mixture_samples
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget


class Evidence(NamedTuple):
    """An estimate of log Z.

    Attributes:
        value: the log of the mean importance weight.
        standard_error: of ``value``, to first order (delta method); too small if the effective sample
            size is, because then the largest weights have not been seen.
        effective_sample_size: as a share of the samples.
        invalid_share: share of samples with log density NaN or +inf; they are left out.
    """

    value: float
    standard_error: float
    effective_sample_size: float
    invalid_share: float


def log_evidence(mixture: Mixture, target: AbstractTarget, key: KeyLike, samples: int = 2000) -> Evidence:
    """The estimate log Z = log E_q[w], w = p~(x) / q(x), from samples of the mixture.

    The standard error is std(w) / (mean(w) sqrt(n)).
    """
    log_w, invalid = at_mixture_samples(mixture, target, key, samples)
    value = log_mean_exp(log_w)
    if not np.isfinite(value):  # no sample with a positive density, or none at all
        return Evidence(value, float("inf"), 0.0, invalid)
    n = log_w.size
    ess = relative_ess(log_w)
    # var(w) / mean(w)^2 = (1 / ess - 1) n / (n - 1)
    error = np.sqrt(max(1 / ess - 1, 0.0) / (n - 1)) if n > 1 else np.inf
    return Evidence(value, float(error), ess, invalid)


def _measure(at: Measured) -> dict[str, float]:
    evidence = log_evidence(at.mixture, at.problem.reference, at.key, at.samples)
    return {
        "log_evidence": evidence.value,
        "log_evidence_se": evidence.standard_error,
        "reverse_ess": evidence.effective_sample_size,
    }


LOG_EVIDENCE = Metric(("log_evidence", "reverse_ess"), _measure)
