"""Double precision inside a program of single precision, whatever `jax_enable_x64` says."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array


def in_double(fn: Callable[..., Array]) -> Callable[..., Array]:
    """``fn`` of arrays, floats among them in float64 and so all within; the result has the first one's type.

    Arrays that ``fn`` needs must be arguments, not constants inside it, which `jax.vmap` could not batch.
    `jax.vmap` rewrites the insides of loops and branches when the switch for double precision is off
    again, which would lose it; so the batched function is built here, with the switch on. Forward
    and reverse differentiation need a rule around it (`jax.custom_jvp`).
    """

    def computed(*arrays: Array) -> Array:
        dtype = arrays[0].dtype
        with jax.enable_x64(True):
            return jax.lax.convert_element_type(fn(*map(_widened, arrays)), dtype)

    return _batchable(computed)


def _widened(a: Array) -> Array:
    floating = np.issubdtype(a.dtype, np.floating)
    return jax.lax.convert_element_type(a, np.dtype("float64")) if floating else a


def _batchable(fn: Callable[..., Array]) -> Callable[..., Array]:
    wrapped = custom_vmap(fn)

    @wrapped.def_vmap
    def _(size: int, batched: list[bool], *arrays: Array) -> tuple[Any, bool]:
        axes = tuple(0 if b else None for b in batched)
        return _batchable(jax.vmap(fn, in_axes=axes, axis_size=size))(*arrays), True

    return wrapped
