"""The evidence upper bound."""

import numpy as np
from numpy.typing import ArrayLike

from natmix.estimate import Estimate
from natmix.experiments.metrics.base import Measured, Metric
from natmix.experiments.metrics.ratios import at_target_samples
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget


def evidence_upper_bound(mixture: Mixture, target: AbstractTarget, samples: ArrayLike) -> Estimate:
    """EUBO = E_p[log p~(x) - log q(x)] = log Z + KL(p || q), from independent samples of the target.

    Its distance from log Z shows modes that the mixture has missed; that of the ELBO does not. For targets
    of infinite variance (stm, 2 degrees of freedom) it is infinite; the estimate only grows with the samples.
    """
    log_w = at_target_samples(mixture, target, samples).log_w
    error = np.std(log_w, ddof=1) / np.sqrt(log_w.size) if np.all(np.isfinite(log_w)) else np.inf
    return Estimate(float(np.mean(log_w)), float(error))


def _measure(at: Measured) -> dict[str, float]:
    assert at.target_samples is not None
    bound = evidence_upper_bound(at.mixture, at.problem.reference, at.target_samples)
    return {"eubo": bound.value, "eubo_se": bound.standard_error}


EUBO = Metric(("eubo",), _measure, needs_target_samples=True)
