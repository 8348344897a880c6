"""What every problem decides from where and how it runs: the floating-point type and the block size."""

from typing import Any

import jax
import jax.numpy as jnp


def float_type(dtype: Any) -> Any:
    """The floating-point type asked for; JAX's default if none is."""
    if dtype is None:
        return jnp.result_type(float)
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


def block_size(cpu: int, accelerator: int) -> int:
    """Points evaluated at once: on a CPU what stays in its caches, elsewhere what fills the device."""
    return cpu if jax.default_backend() == "cpu" else accelerator
