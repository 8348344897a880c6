"""Checks of the arguments of mixtures."""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike

_P = ParamSpec("_P")
_R = TypeVar("_R")


def key_by_keyword(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a method raise an error with the correct call if its key is given by position."""
    most = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in inspect.signature(method).parameters.values())

    @functools.wraps(method)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if len(args) > most or any(_is_key(a) for a in args):
            name = method.__name__
            first = "other, 1000" if name == "kl" else "10"
            raise TypeError(
                f"Mixture.{name} takes the number of samples by position and the key by keyword: "
                f"{name}({first}, key=0)."
            )
        return method(*args, **kwargs)

    return checked


def _is_key(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return False
    return jnp.issubdtype(dtype, jax.dtypes.prng_key) or (dtype == jnp.uint32 and np.shape(value) == (2,))


def at_least_one(n: int) -> int:
    """The number of samples of an estimate, checked."""
    if n < 1:
        raise ValueError(f"An estimate needs at least one sample, got n={n}.")
    return n


def holds(condition: Bool[Array, ""]) -> bool:
    """Whether a check passes; inside jit or vmap, where values are unknown, it always does."""
    return isinstance(condition, jax.core.Tracer) or bool(condition)


def vector(value: ArrayLike, size: int, dtype: Any, name: str) -> Float[Array, " size"]:
    """A finite vector, from a vector or one number for all entries."""
    v = jnp.asarray(value, dtype)
    if v.shape not in ((), (size,)):
        raise ValueError(f"{name} must be a number or a vector of length {size}, got shape {v.shape}.")
    if not holds(jnp.all(jnp.isfinite(v))):
        raise ValueError(f"{name} must be finite.")
    return jnp.broadcast_to(v, (size,))


def normalise(weights: Float[Array, " K"]) -> Float[Array, " K"]:
    """The logarithms of normalised weights."""
    return jnp.log(weights) - jnp.log(jnp.sum(weights))


def check_parameters(
    weights: ArrayLike, means: ArrayLike, spread: ArrayLike, *, matrix: bool
) -> tuple[Array, Array, Array]:
    """Weights, means and covariances (or variances) of one floating type."""
    m = jnp.asarray(means)
    if not jnp.issubdtype(m.dtype, jnp.floating):
        m = m.astype(jnp.result_type(float))
    if m.ndim != 2 or m.shape[0] < 1 or m.shape[1] < 1:
        raise ValueError(f"Means must have shape [K, D] with K, D >= 1, got {m.shape}.")
    K, D = m.shape
    w = jnp.asarray(weights, m.dtype)
    if w.shape != (K,):
        raise ValueError(f"Weights must have shape [{K}] to match the means, got {w.shape}.")
    s = jnp.asarray(spread, m.dtype)
    name, shape = ("Covariances", (K, D, D)) if matrix else ("Variances", (K, D))
    if s.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)} to match the means, got {s.shape}.")
    if any(isinstance(a, jax.core.Tracer) for a in (w, m, s)):
        return w, m, s
    if not bool(jnp.all(w >= 0)) or not bool(jnp.sum(w) > 0) or not bool(jnp.all(jnp.isfinite(w))):
        raise ValueError("Weights must be finite, not negative, and not all zero.")
    if not bool(jnp.all(jnp.isfinite(m))):
        raise ValueError("Means must be finite.")
    if matrix:
        if not bool(jnp.all(jnp.isfinite(s))):
            raise ValueError("Covariances must be finite.")
        if not bool(
            jnp.allclose(s, jnp.swapaxes(s, 1, 2), rtol=1e-3, atol=1e-6 * float(jnp.max(jnp.abs(s))))
        ):
            raise ValueError("Covariances must be symmetric.")
        good = jnp.all(jnp.isfinite(jnp.linalg.cholesky(s)), axis=(1, 2))
        if not bool(jnp.all(good)):
            bad = int(jnp.argmin(good))
            raise ValueError(f"Covariance {bad} is singular or not positive definite; it has no density.")
    elif not bool(jnp.all((s > 0) & jnp.isfinite(s))):
        raise ValueError("Variances must be positive and finite.")
    return w, m, s


def known_dims(dims: Any, D: int) -> np.ndarray:
    """Dimensions counted from 0; negative ones count from the end."""
    raw = list(dims) if np.ndim(dims) else [dims]
    try:
        given = [operator.index(d) for d in raw]
    except TypeError:
        raise ValueError(f"Dimensions are whole numbers from 0 to {D - 1}, got {raw}.") from None
    bad = [d for d in given if not -D <= d < D]
    if bad:
        raise ValueError(f"Dimensions are whole numbers from 0 to {D - 1}, got {bad[0]}.")
    kept = np.array([d % D for d in given], dtype=int)
    if kept.size == 0 or len(set(kept.tolist())) != kept.size:
        raise ValueError(f"Name at least one dimension, each only once, got {given}.")
    return kept
