"""Numbers as text: Monte Carlo estimates with their standard errors, and counts of things."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_MAX_DECIMALS = 8
"""An error with more is printed in scientific notation."""


class Estimate(NamedTuple):
    """A Monte Carlo estimate with its standard error; an error of 0 means that the value is exact."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        return format_estimate(self.value, self.standard_error)

    def percent(self) -> str:
        """A share as a percentage, with its error."""
        value, error = 100 * self.value, 100 * self.standard_error
        if not (math.isfinite(value) and math.isfinite(error)):
            return f"{value:.4g}% ± {error:.2g}%"
        error = max(error, 0.01)
        decimals = min(max(_decimals(error), 0), 2)
        return f"{value:.{decimals}f}% ± {error:.{decimals}f}%"


def format_estimate(value: float, error: float) -> str:
    """The error with two significant digits, the value rounded to the same decimal place."""
    if error == 0:
        return f"{value:.6g}"
    if not (math.isfinite(value) and math.isfinite(error)):
        return f"{value:.4g} ± {error:.2g}"
    decimals = _decimals(error)
    if decimals > _MAX_DECIMALS:
        return f"{value:.{min(decimals, 15)}f} ± {error:.1e}"
    shown = max(decimals, 0)
    return f"{round(value, decimals):.{shown}f} ± {round(error, decimals):.{shown}f}"


def _decimals(error: float) -> int:
    """The decimal place of the second significant digit; negative left of the point."""
    return 1 - math.floor(math.log10(float(f"{error:.1e}")))


def counted(n: int, noun: str) -> str:
    """1 mode, 2 modes, 1,000 evaluations."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def rounding_error(dtype: Any, *log_densities: Any) -> float:
    """The resolution of ``dtype`` at the magnitude of these log densities.

    A standard error below it is spurious: the log densities themselves are not known that well.
    """
    magnitudes = [np.abs(np.asarray(v, float)) for v in log_densities]
    means = [float(np.mean(m[np.isfinite(m)])) for m in magnitudes if np.isfinite(m).any()]
    return float(jnp.finfo(dtype).eps) * max(means, default=0.0)


def are_single(values: Float[np.ndarray, " N"]) -> bool:
    """Whether float32 represents all of these numbers, and they are not just one."""
    finite = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        same = np.array_equal(finite.astype(np.float32).astype(float), finite)
    return same and np.unique(finite).size > 1


def mean_estimate(values: Float[Array, " n"], resolution: float = 0.0) -> Estimate:
    """The mean and its standard error, which is at least ``resolution``."""
    n = values.shape[0]
    error = jnp.std(values, ddof=1) / np.sqrt(n) if n > 1 else jnp.inf
    return Estimate(float(jnp.mean(values)), max(float(error), resolution))
