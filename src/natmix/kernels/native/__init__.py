"""Loops over samples and components in machine code, for CPUs.

XLA writes every product of matrices to memory and reads it again; these loops keep some samples in the
processor's registers, and leave out pairs of a sample and a component that change no digit of a sum. Those of
test problems find a log density and its gradient in one pass over the data. They are written in C (folder
`c`), compiled when natmix is installed, and called by XLA. Without them everything works, by way of XLA
alone: it takes longer.
"""

from natmix.kernels.native.calls import (
    count_rows,
    draws,
    front,
    largest_log_weights,
    log_prob,
    log_sums,
    logistic,
    logistic_minibatch,
    meet,
    mixture_log_prob,
    network,
    pulled_sums,
    put_chosen,
    regressions,
    relevant_log_prob,
    sample_sums,
    score,
    stein,
    trust_region,
    weighted_sums,
)
from natmix.kernels.native.library import available

__all__ = [
    "available",
    "count_rows",
    "draws",
    "front",
    "largest_log_weights",
    "log_prob",
    "log_sums",
    "logistic",
    "logistic_minibatch",
    "meet",
    "mixture_log_prob",
    "network",
    "pulled_sums",
    "put_chosen",
    "regressions",
    "relevant_log_prob",
    "sample_sums",
    "score",
    "stein",
    "trust_region",
    "weighted_sums",
]
