"""The effective sample size of the mixture as a proposal."""

import numpy as np
from numpy.typing import ArrayLike

from natmix.array_types import KeyLike
from natmix.diagnostics.psis import log_mean_exp, relative_ess
from natmix.experiments.metrics.base import Measured, Metric
from natmix.experiments.metrics.ratios import at_mixture_samples, at_target_samples
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget


def reverse_effective_sample_size(
    mixture: Mixture, target: AbstractTarget, key: KeyLike, samples: int = 2000
) -> float:
    """ESS / n = E_q[w]^2 / E_q[w^2], w = p~ / q, from samples of the mixture: 1 if q = p.

    It does not show a missed mode: compare with `forward_effective_sample_size`.
    """
    return relative_ess(at_mixture_samples(mixture, target, key, samples).log_w)


def forward_effective_sample_size(mixture: Mixture, target: AbstractTarget, samples: ArrayLike) -> float:
    """ESS / n = 1 / (E_p[w] E_p[1 / w]), w = p~ / q, from samples of the target.

    The same number as the reverse one in the limit, because E_q[w^2] / Z^2 = E_p[w] / Z and
    E_p[1 / w] = 1 / Z, but estimated where the target is: near 0 if the mixture has missed a mode, or if
    the target's tails are heavier than those of Gaussians (stm).
    """
    log_w = at_target_samples(mixture, target, samples).log_w
    if np.any(np.isinf(log_w)):  # a sample where one of the densities vanishes
        return 0.0
    return float(np.exp(-log_mean_exp(log_w) - log_mean_exp(-log_w)))


def _measure(at: Measured) -> dict[str, float]:
    assert at.target_samples is not None
    found = forward_effective_sample_size(at.mixture, at.problem.reference, at.target_samples)
    return {"forward_ess": found}


FORWARD_ESS = Metric(("forward_ess",), _measure, needs_target_samples=True)
