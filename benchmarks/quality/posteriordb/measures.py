"""How far draws are from reference draws."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

LEVELS = (0.05, 0.95)


class Errors(NamedTuple):
    """The worst over all variables.

    Attributes:
        mean: error of a mean, in standard deviations of the reference.
        sd_ratio: of standard deviations, draws over reference, furthest from 1 on a log scale.
        quantile: error of the 5% or 95% quantile, in standard deviations of the reference.
    """

    mean: float
    sd_ratio: float
    quantile: float

    @property
    def right(self) -> bool:
        """Whether all three are as good as is asked for."""
        return self.mean <= 0.05 and 0.95 <= self.sd_ratio <= 1.05 and self.quantile <= 0.1


def errors(draws: Float[np.ndarray, "N P"], reference: Float[np.ndarray, "M P"], logarithms: bool) -> Errors:
    """Of the draws, or of their logarithms."""
    if logarithms:
        if draws.min() <= 0 or reference.min() <= 0:
            raise ValueError("Draws of positive variables must be positive.")
        draws, reference = np.log(draws), np.log(reference)
    sd = reference.std(axis=0, ddof=1)
    ratio = draws.std(axis=0, ddof=1) / sd
    with np.errstate(divide="ignore"):
        worst = int(np.argmax(np.abs(np.log(ratio))))
    quantiles = [np.quantile(x, LEVELS, axis=0) for x in (draws, reference)]
    return Errors(
        float(np.max(np.abs(draws.mean(axis=0) - reference.mean(axis=0)) / sd)),
        float(ratio[worst]),
        float(np.max(np.abs(quantiles[0] - quantiles[1]) / sd)),
    )
