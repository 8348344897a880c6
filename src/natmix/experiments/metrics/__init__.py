"""Metrics of a mixture: those of the paper, and some more."""

from natmix.experiments.metrics.all import METRICS, Metrics, all_metrics, register
from natmix.experiments.metrics.base import Measured, Metric
from natmix.experiments.metrics.detected_modes import detected_modes
from natmix.experiments.metrics.effective_sample_size import (
    forward_effective_sample_size,
    reverse_effective_sample_size,
)
from natmix.experiments.metrics.entropy import entropy
from natmix.experiments.metrics.evidence_upper_bound import evidence_upper_bound
from natmix.experiments.metrics.log_evidence import Evidence, log_evidence
from natmix.experiments.metrics.mmd import mmd, mmd_to_reference
from natmix.experiments.metrics.neg_elbo import NegElbo, neg_elbo
from natmix.experiments.metrics.posterior_mse import posterior_mse
from natmix.experiments.metrics.predictive_accuracy import predictive_accuracy
from natmix.experiments.metrics.sliced_wasserstein import sliced_wasserstein

__all__ = [
    "METRICS",
    "Evidence",
    "Measured",
    "Metric",
    "Metrics",
    "NegElbo",
    "all_metrics",
    "detected_modes",
    "entropy",
    "evidence_upper_bound",
    "forward_effective_sample_size",
    "log_evidence",
    "mmd",
    "mmd_to_reference",
    "neg_elbo",
    "posterior_mse",
    "predictive_accuracy",
    "register",
    "reverse_effective_sample_size",
    "sliced_wasserstein",
]
