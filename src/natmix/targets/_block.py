"""How many points of a target are evaluated at once."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from natmix._blocks import by_memory

_CPU_BLOCK = 128
_ACCELERATOR_BLOCKS = (1024, 8192)
_BYTES_PER_POINT = 2**23
"""Of an accelerator's memory, for each point of a block: 8192 points on one with 64 GiB or more."""
_LARGEST_BLOCK = 2**17
_NUMBERS = (2**21, 2**25)
_BYTES_PER_NUMBER = 2**8
"""Of an accelerator's memory, for each number that a block computes: where these are few, more points."""


def block_points(evaluate: Callable[[Array], Any] | None, x: Float[Array, "Q D"]) -> int:
    """Points of a block; ``evaluate``, if the block may be larger than usual, is the target at some points.

    The host has to wait for an accelerator after every block, which takes longer than a light target does.
    """
    if jax.default_backend() == "cpu":
        return _CPU_BLOCK
    usual = by_memory(_BYTES_PER_POINT, *_ACCELERATOR_BLOCKS)
    if evaluate is None or x.shape[0] <= usual:
        return usual
    one = jax.make_jaxpr(evaluate)(jax.ShapeDtypeStruct((1, x.shape[1]), x.dtype))
    light = by_memory(_BYTES_PER_NUMBER, *_NUMBERS) / max(numbers(one.jaxpr), 1)
    return int(np.clip(light, usual, _LARGEST_BLOCK))


def numbers(jaxpr: Any) -> float:
    """How many numbers its operations compute; infinite where loops of unknown length do."""
    return sum(map(_of_operation, jaxpr.eqns))


def _of_operation(operation: Any) -> float:
    if operation.primitive.name == "while":
        return np.inf
    inner = list(_jaxprs(operation.params.values()))
    if inner:
        return operation.params.get("length", 1) * sum(map(numbers, inner))
    return sum(int(np.prod(v.aval.shape)) for v in operation.outvars)


def _jaxprs(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _jaxprs(value)
        elif hasattr(value, "eqns") or hasattr(value, "jaxpr"):
            yield getattr(value, "jaxpr", value)
