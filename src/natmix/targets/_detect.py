"""Find out what kind of function a target is."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natmix.targets._base import AbstractTarget, TargetError, check_dim
from natmix.targets.host import HostTarget
from natmix.targets.inside import JaxTarget

_KEY_NAMES = ("key", "rng", "rng_key", "prng_key")


def as_target(fn: Any, dim: int | None, dtype: Any, probe: np.ndarray) -> tuple[AbstractTarget, int]:
    """The target, and how many evaluations it took to find out what it is.

    A function that JAX can trace is never evaluated for that; one outside JAX is called once, at
    ``probe``.
    """
    if isinstance(fn, AbstractTarget):
        if dim is not None and fn.dim != check_dim(dim):
            raise ValueError(f"dim={dim} was given, but the target has dim={fn.dim}.")
        return fn, 0
    if not callable(fn):
        raise ValueError(f"The target must be a function of a point, got {type(fn).__name__}.")
    if dim is None:
        raise ValueError("Give dim, the number of dimensions of the target.")
    dim = check_dim(dim)
    stochastic = _takes_key(fn)
    jax_target, trouble = _trace(fn, dim, dtype, stochastic)
    if jax_target is not None:
        return jax_target, 0
    if stochastic:
        raise TargetError(f"The target takes a key but JAX cannot trace it: {trouble}")
    return _probe(fn, dim, probe, trouble)


def _takes_key(fn: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return False
    required = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(required) == 2 and required[0].name in _KEY_NAMES


def _trace(fn: Callable[..., Any], dim: int, dtype: Any, stochastic: bool) -> tuple[JaxTarget | None, str]:
    key = (jax.eval_shape(lambda: jax.random.key(0)),) if stochastic else ()
    trouble = []
    for batched, shape in ((False, (dim,)), (True, (3, dim))):
        try:
            out = jax.eval_shape(fn, *key, jax.ShapeDtypeStruct(shape, dtype))
        except Exception as error:
            trouble.append(_short(error))
            continue
        rows = shape[:-1]
        gradient = isinstance(out, (tuple, list)) and len(out) == 2
        parts = list(out) if gradient else [out]
        wanted = [rows, shape][: len(parts)]
        if all(getattr(p, "shape", None) == w for p, w in zip(parts, wanted, strict=True)):
            _check_dtype(parts[0].dtype)
            return JaxTarget(fn, dim, batched, gradient, stochastic), ""
        shapes = [getattr(p, "shape", type(p).__name__) for p in parts]
        trouble.append(f"for a point of shape {shape} it returned shape {shapes if gradient else shapes[0]}")
        if not batched and rows == () and shapes[0] == (1,):
            trouble[-1] += " (return a scalar: take [0] of it)"
    return None, "; ".join(dict.fromkeys(trouble))


def _check_dtype(dtype: Any) -> None:
    if not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
        raise TargetError(f"The target must return a real number, it returns {dtype}.")


def _probe(fn: Callable[..., Any], dim: int, probe: np.ndarray, trouble: str) -> tuple[HostTarget, int]:
    point = np.asarray(probe, dtype=np.float64).reshape(dim)
    try:
        out = fn(point.copy())
    except Exception as error:
        raise TargetError(
            f"The target could not be evaluated at the point {_show(point)}: it raised "
            f"{type(error).__name__}: {error}"
        ) from error
    gradient = isinstance(out, (tuple, list)) and len(out) == 2
    value, slope = (out[0], out[1]) if gradient else (out, np.zeros(dim))
    try:
        value, slope = np.asarray(value, dtype=np.float64), np.asarray(slope, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TargetError(f"The target must return a real number, it returned {type(value).__name__}.") from error
    if value.size != 1:
        raise TargetError(
            f"The target must return one number for a point of shape [{dim}], it returned shape "
            f"{list(value.shape)}; if it takes many points, wrap it: natmix.HostTarget(fn, dim, batched=True). "
            f"(JAX could not trace it: {trouble})"
        )
    if slope.size != dim:
        raise TargetError(f"The target's gradient must have shape [{dim}], got {list(slope.shape)}.")
    return HostTarget(fn, dim, returns_gradient=gradient), 1


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _show(point: np.ndarray) -> str:
    return np.array2string(point, precision=3, threshold=6)
