"""How the benchmarks here take the time of a function."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

ROUNDS, SHORTEST = 5, 0.05
"""Rounds of calls, and the seconds that a round should take at least."""


def seconds_per_call(fn: Callable[..., Any], *arguments: Any) -> float:
    """The least over some rounds of calls, after one that compiles."""
    jax.block_until_ready(fn(*arguments))
    calls = int(np.clip(SHORTEST / _round(fn, arguments, 1), 1, 100))
    return min(_round(fn, arguments, calls) for _ in range(ROUNDS))


def _round(fn: Callable[..., Any], arguments: tuple[Any, ...], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        out = fn(*arguments)
    jax.block_until_ready(out)
    return (time.perf_counter() - start) / calls
