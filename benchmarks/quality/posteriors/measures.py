"""How far samples are from the truth."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from posteriors.problem import Draws, Truth


class Errors(NamedTuple):
    """Of moments.

    Attributes:
        mean: the largest error of a mean, in units of the true standard deviation.
        sd_ratio: estimated over true standard deviation, where it is furthest from 1 on a log scale.
    """

    mean: float
    sd_ratio: float


def errors(values: Draws, weights: Float[np.ndarray, " N"] | None, truth: Truth) -> Errors:
    """From samples, weighted if there are weights."""
    w = np.full(len(values), 1 / len(values)) if weights is None else weights / weights.sum()
    mean = w @ values
    sd = np.sqrt(w @ (values - mean) ** 2)
    ratio = sd / truth.sd
    with np.errstate(divide="ignore"):
        worst = int(np.argmax(np.abs(np.log(ratio))))
    return Errors(float(np.max(np.abs(mean - truth.mean) / truth.sd)), float(ratio[worst]))
