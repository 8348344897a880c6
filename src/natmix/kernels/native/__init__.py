"""Native kernels over samples and components, in C, for CPUs.

XLA writes every matrix product to memory and reads it again. These kernels keep some samples in the
processor's registers, and skip pairs of a sample and a component that are negligible at working precision.
They are written in C (folder `c`), compiled when natmix is installed, and called by XLA. Without them
everything works by XLA alone, more slowly. To add one: docs/extending-native-kernels.md.
"""

from natmix.kernels.native.calls import (
    background_log_density,
    draws,
    largest_log_weights,
    log_prob,
    masked_bincount,
    mixture_log_prob,
    more_regressions,
    nonzero,
    relevant_log_prob,
    ring_buffer_write,
    sample_sums,
    score,
    stein_sums,
    trust_region,
    weighted_logsumexp,
    weighted_scores,
    weighted_sums,
)
from natmix.kernels.native.library import available

__all__ = [
    "available",
    "background_log_density",
    "draws",
    "largest_log_weights",
    "log_prob",
    "masked_bincount",
    "mixture_log_prob",
    "more_regressions",
    "nonzero",
    "relevant_log_prob",
    "ring_buffer_write",
    "sample_sums",
    "score",
    "stein_sums",
    "trust_region",
    "weighted_logsumexp",
    "weighted_scores",
    "weighted_sums",
]
