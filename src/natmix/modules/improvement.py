"""Stepsizes that grow after an improvement and shrink otherwise: options R and N."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def adapted(options: Any, stepsize: Float[Array, "*K"], rose: Bool[Array, "*K"]) -> Float[Array, "*K"]:
    """min(increase * b, max) where the objective rose, max(decrease * b, min) elsewhere."""
    longer = jnp.minimum(options.increase * stepsize, options.max_stepsize)
    shorter = jnp.maximum(options.decrease * stepsize, options.min_stepsize)
    return jnp.where(rose, longer, shorter)


def check_limits(options: Any) -> None:
    """Check that min_stepsize does not exceed max_stepsize."""
    low, high = options.min_stepsize, options.max_stepsize
    known = not isinstance(low, jax.core.Tracer) and not isinstance(high, jax.core.Tracer)
    if known and float(low) > float(high):
        raise ValueError(
            f"{type(options).__name__}: min_stepsize must not exceed max_stepsize, got {low:g} and {high:g}."
        )
