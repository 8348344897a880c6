"""Native kernels of the paper's problems: a log density and its gradient in one pass over the data, for CPUs.

They are a library of their own, beside that of `natmix.kernels.native`, which is loaded when a problem first
asks for it.
"""

from natmix.experiments.native.calls import (
    available,
    logistic_regression,
    logistic_regression_minibatch,
    used,
    wine_network,
)

__all__ = ["available", "logistic_regression", "logistic_regression_minibatch", "used", "wine_network"]
