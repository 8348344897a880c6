"""Double precision inside a single-precision program, independent of `jax_enable_x64`."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array


def in_double(fn: Callable[..., Array]) -> Callable[..., Array]:
    """``fn`` computed in float64; the result has the type of the first array.

    Arrays that ``fn`` needs must be arguments: `jax.vmap` could not batch constants inside it. `jax.vmap`
    rewrites loops and branches after double precision is switched off again, which would lose it. Therefore
    the batched function is built here, with double precision on. Differentiation needs a rule around it
    (`jax.custom_jvp`).
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
