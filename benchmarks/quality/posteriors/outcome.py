"""What a method leaves: samples of its approximation, weighted and not."""

import dataclasses

import numpy as np
from jaxtyping import Float

from natmix.diagnostics.psis import log_mean_exp, pareto_smooth
from posteriors.symmetry import Points


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One method with one seed.

    Attributes:
        method: its name.
        evaluations: of the target: by value or by value and gradient, either counts one.
        seconds: with compilation.
        raw: samples of the approximation, in unconstrained coordinates.
        corrected: the samples that importance weights are known of.
        weights: of ``corrected``, smoothed; they need not sum to one.
        elbo: of the approximation.
        log_evidence: by importance sampling.
        log_evidence_se: its own standard error.
        k_hat: Pareto's shape of the weights' tail.
        verdict: natmix's own; empty for others.
        modes: that natmix counts; 0 for others.
    """

    method: str
    evaluations: int
    seconds: float
    raw: Points
    corrected: Points
    weights: Float[np.ndarray, " P"]
    elbo: float
    log_evidence: float
    log_evidence_se: float
    k_hat: float
    verdict: str = ""
    modes: int = 0


def weighed(
    method: str, evaluations: int, seconds: float, x: Points, log_w: Float[np.ndarray, " N"], elbo: float
) -> Outcome:
    """From samples with their log importance weights."""
    log_w = np.where(np.isfinite(log_w), log_w, -np.inf)
    smoothed = pareto_smooth(log_w)
    log_z = log_mean_exp(smoothed.log_weights)
    weights = np.exp(smoothed.log_weights - log_z)
    error = float(weights.std() / np.sqrt(len(weights)))
    return Outcome(method, evaluations, seconds, x, x, weights, elbo, log_z, error, smoothed.k_hat)
