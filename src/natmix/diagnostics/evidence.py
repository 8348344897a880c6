"""What samples of a mixture with known target density say about it, in numbers."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.psis import (
    MIN_TAIL,
    SmoothedWeights,
    k_hat_limit,
    log_mean_exp,
    pareto_smooth,
    relative_ess,
    tail_size,
)
from natmix.estimate import Estimate

_DEEP = 3
"""The deep tail is this share of the tail of PSIS. Weights of a light-tailed mixture on a heavy-tailed target
have a tail whose shape grows with its depth, and a peak of equal weights makes the shape of the whole tail
meaningless; the deep tail shows both."""


class SampleEvidence(NamedTuple):
    """What the samples say.

    Attributes:
        samples: with a usable log density, those of density zero included.
        weights: importance weights with a mean of 1, of the usable samples.
        tail: the tail of the weights, fitted as in PSIS.
        deep_tail: that of its largest third.
        effective_samples: (sum w)^2 / sum w^2.
        log_evidence: log Z, given that no mode is unseen. Its error is that of the weights seen, plus what
            the tail may hide, plus rounding.
        elbo: -inf if the density is zero at a sample; its error is then that of the others.
        gap: KL(q' || p), with q' the mixture where the target's density is positive.
        zero_share: of samples with density zero.
        invalid_share: of samples with NaN or +inf.
        rounding: the rounding error of a log importance weight.
    """

    samples: int
    weights: Float[np.ndarray, " N"]
    tail: SmoothedWeights
    deep_tail: SmoothedWeights
    effective_samples: float
    log_evidence: Estimate
    elbo: Estimate
    gap: Estimate
    zero_share: float
    invalid_share: float
    rounding: float

    @property
    def k_limit(self) -> float:
        """The largest reliable k-hat."""
        return k_hat_limit(self.samples)

    @property
    def hidden(self) -> float:
        """The share of the total mass that larger weights than those seen may have, by the worse tail."""
        return max(self.tail.hidden, self.deep_tail.hidden)


def gather_evidence(draws: EvaluatedDraws) -> SampleEvidence:
    """All numbers from the samples."""
    usable = draws.log_target < np.inf
    log_w = draws.log_ratio[usable]
    n = log_w.size
    tail = pareto_smooth(log_w)
    size = tail_size(n) // _DEEP
    deep = pareto_smooth(log_w, size) if size >= MIN_TAIL else tail
    # A peak of equal weights, not the tail, decides the shape of the whole tail.
    misfit = tail.k_hat > k_hat_limit(n) >= deep.k_hat
    smoothed = deep if misfit else tail
    log_z = log_mean_exp(smoothed.log_weights) if n else -np.inf
    weights = np.exp(smoothed.log_weights - log_z) if np.isfinite(log_z) else np.zeros(n)
    ess = n * relative_ess(smoothed.log_weights) if n else 0.0
    rounding = draws.resolution
    positive = np.isfinite(log_w)
    inside = log_w[positive]
    mean = float(inside.mean()) if inside.size else -np.inf
    mean_error = float(inside.std(ddof=1) / np.sqrt(inside.size)) if inside.size > 1 else np.inf
    hidden = deep.hidden_at_most if misfit else max(tail.hidden, deep.hidden_at_most)
    error = _evidence_error(weights, log_w, min(hidden, 1.0)) if ess > 1 else np.inf
    share = inside.size / max(n, 1)
    gap_error = _gap_error(weights[positive] * share, inside)
    return SampleEvidence(
        samples=n,
        weights=weights,
        tail=tail,
        deep_tail=deep,
        effective_samples=ess,
        log_evidence=Estimate(float(log_z), float(np.hypot(error, rounding))),
        elbo=Estimate(mean if inside.size == n else -np.inf, float(np.hypot(mean_error, rounding))),
        gap=Estimate(
            float(log_z - np.log(share) - mean) if inside.size else np.inf,
            float(np.hypot(gap_error, rounding)),
        ),
        zero_share=float(np.mean(draws.log_target == -np.inf)) if len(draws) else 0.0,
        invalid_share=float(np.mean(~usable)) if len(draws) else 0.0,
        rounding=rounding,
    )


def _evidence_error(weights: Float[np.ndarray, " N"], log_w: Float[np.ndarray, " N"], hidden: float) -> float:
    """The error of log Z: the noise of the weights, smoothed or not, and the mass that the tail may hide.

    The tail hides about the mass of the largest weight, and what the fitted tail has beyond the samples.
    """
    raw = np.exp(log_w - log_mean_exp(log_w))
    n = len(raw)
    noise = max(float(np.std(weights)), float(np.std(raw))) / np.sqrt(n)
    # Of equal weights none hides anything.
    largest = float(raw.max() - np.median(raw)) / n
    return float(np.sqrt(noise**2 + hidden**2 + largest**2))


def _gap_error(weights: Float[np.ndarray, " N"], log_w: Float[np.ndarray, " N"]) -> float:
    """The error of log mean w - mean log w, to first order; the two share their samples."""
    return float(np.std(weights - log_w) / np.sqrt(log_w.size)) if log_w.size > 1 else np.inf
