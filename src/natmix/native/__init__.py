"""Loops over samples and components in machine code, for CPUs.

XLA writes every product of matrices to memory and reads it again; these loops keep some samples in the
processor's registers, and leave out pairs of a sample and a component that change no digit of a sum. They are
written in C (folder `c`), compiled when natmix is installed, and called by XLA. Without them everything
works, by way of XLA alone: it takes longer.
"""

from natmix.native._calls import (
    draws,
    largest_log_weights,
    log_prob,
    log_sums,
    mixture_log_prob,
    moments,
    pulled_sums,
    regressions,
    sample_sums,
    score,
    weighted_sums,
)
from natmix.native._library import available, used

__all__ = [
    "available",
    "draws",
    "largest_log_weights",
    "log_prob",
    "log_sums",
    "mixture_log_prob",
    "moments",
    "pulled_sums",
    "regressions",
    "sample_sums",
    "score",
    "used",
    "weighted_sums",
]
