"""How many points of a target are evaluated at once."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from natmix.kernels.plan import current

_CPU_BLOCK = 128
_ACCELERATOR_BLOCKS = (1024, 8192)
_BYTES_PER_POINT = 2**23
"""Bytes of an accelerator's memory per point of a block: 8192 points with 64 GiB or more."""
_LARGEST_BLOCK = 2**17
_NUMBERS = (2**21, 2**25)
_BYTES_PER_NUMBER = 2**8
"""Bytes of an accelerator's memory per number that a block computes: cheap targets get larger blocks."""


_UNKNOWN = ("while", "callback", "ffi_call", "custom_call", "pallas_call")
"""Operations, by a part of their name, whose cost their outputs do not show."""


def points_at_once(evaluate: Callable[[Array], Any] | None, x: Float[Array, "Q D"]) -> int:
    """Points per block; ``evaluate`` is the target at some points, if the block may be larger than usual.

    The host waits for an accelerator after every block, which takes longer than a cheap target does.
    """
    if current().on_cpu:
        return _CPU_BLOCK
    usual = current().by_memory(_BYTES_PER_POINT, *_ACCELERATOR_BLOCKS)
    if evaluate is None or x.shape[0] <= usual:
        return usual
    block = jax.make_jaxpr(evaluate)(jax.ShapeDtypeStruct((usual, x.shape[1]), x.dtype))
    per_point = max(numbers(block.jaxpr, usual) / usual, 1)
    return int(np.clip(current().by_memory(_BYTES_PER_NUMBER, *_NUMBERS) / per_point, usual, _LARGEST_BLOCK))


def numbers(jaxpr: Any, points: int) -> float:
    """How many numbers its operations compute; infinite if unknown, or if points follow one another."""
    return sum(_of_operation(operation, points) for operation in jaxpr.eqns)


def _of_operation(operation: Any, points: int) -> float:
    length = operation.params.get("length", 1)
    if any(name in operation.primitive.name for name in _UNKNOWN) or length >= points:
        return np.inf
    inner = list(_jaxprs(operation.params.values()))
    if inner:
        return length and length * sum(numbers(jaxpr, points) for jaxpr in inner)
    return sum(int(np.prod(v.aval.shape)) for v in operation.outvars)


def _jaxprs(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _jaxprs(value)
        elif hasattr(value, "eqns") or hasattr(value, "jaxpr"):
            yield getattr(value, "jaxpr", value)
