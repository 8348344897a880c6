"""Numbers with their standard errors."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Estimate(NamedTuple):
    """A Monte-Carlo estimate with its standard error."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        if not (math.isfinite(self.value) and 1e-7 < self.standard_error < math.inf):
            return f"{self.value:.4g} ± {self.standard_error:.2g}"
        decimals = max(0, 1 - math.floor(math.log10(self.standard_error)))
        return f"{self.value:.{decimals}f} ± {self.standard_error:.{decimals}f}"


def mean_estimate(values: Float[Array, " n"]) -> Estimate:
    """Mean and its standard error."""
    n = values.shape[0]
    error = jnp.std(values, ddof=1) / np.sqrt(n) if n > 1 else jnp.inf
    return Estimate(float(jnp.mean(values)), float(error))
