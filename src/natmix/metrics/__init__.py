"""How good a mixture is: the paper's metrics, and some it does not have."""

from natmix.metrics._all import Metrics, all_metrics
from natmix.metrics._detected_modes import detected_modes
from natmix.metrics._effective_sample_size import (
    forward_effective_sample_size,
    reverse_effective_sample_size,
)
from natmix.metrics._entropy import entropy
from natmix.metrics._evidence_upper_bound import evidence_upper_bound
from natmix.metrics._log_evidence import Evidence, log_evidence
from natmix.metrics._mmd import mmd, mmd_to_reference
from natmix.metrics._neg_elbo import NegElbo, neg_elbo
from natmix.metrics._posterior_mse import posterior_mse
from natmix.metrics._predictive_accuracy import predictive_accuracy
from natmix.metrics._sliced_wasserstein import sliced_wasserstein

__all__ = [
    "Evidence",
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
    "reverse_effective_sample_size",
    "sliced_wasserstein",
]
