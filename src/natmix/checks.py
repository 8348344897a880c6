"""Checks of arguments: integers and floating-point types."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def as_int(value: Any, name: str, least: int = 1) -> int:
    """``value`` as an integer of at least ``least``; 1000.0 is not one, and neither is True."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return number


def float_type(dtype: Any, default: Any = None) -> Any:
    """The float type asked for, or ``default``, or JAX's default."""
    if dtype is None:
        return jnp.result_type(float) if default is None else default
    try:
        wanted = jnp.dtype(dtype)
    except TypeError:
        wanted = None
    if wanted not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype!r}.")
    if wanted == jnp.float64 and not jax.config.read("jax_enable_x64"):
        raise ValueError(
            "dtype float64 needs jax.config.update('jax_enable_x64', True) before arrays are made."
        )
    return wanted
