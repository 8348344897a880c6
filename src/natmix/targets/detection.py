"""Detect what kind of function a target is."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natmix.array_types import PRNGKey
from natmix.kernels.compilation import Rest, parted
from natmix.targets.base import AbstractTarget, TargetError, check_dim
from natmix.targets.function_of_data import FunctionOfData
from natmix.targets.host import HostTarget
from natmix.targets.identity import depends_on_last_argument, stable_identity
from natmix.targets.jax_target import JaxTarget
from natmix.targets.traced import with_data_apart
from natmix.targets.two_forms import AbstractTwoForms

_KEY_NAMES = ("key", "rng", "rng_key", "prng_key")


class DetectedTarget(NamedTuple):
    """A target, and what its detection took.

    Attributes:
        target: the target.
        probes: evaluations spent on its detection.
        why: why it has no gradient, if the user does not know.
    """

    target: AbstractTarget
    probes: int = 0
    why: str = ""


def as_target(fn: Any, dim: int | None, dtype: Any, probe: np.ndarray) -> DetectedTarget:
    """A function as a target.

    A function that JAX can trace is not evaluated for its detection; one outside JAX is called at ``probe``
    (and, if it does not accept a single point, at several copies of it).
    """
    if isinstance(fn, AbstractTarget):
        if dim is not None and fn.dim != check_dim(dim):
            raise ValueError(f"dim={dim} was given, but the target has dim={fn.dim}.")
        if isinstance(fn, JaxTarget):
            _check_jax_target(fn, dtype)
        return DetectedTarget(fn)
    if not callable(fn) and callable(getattr(fn, "log_prob", None)):
        fn = fn.log_prob  # a distribution
    if not callable(fn):
        raise ValueError(f"The target must be a function of a point, got {type(fn).__name__}.")
    if dim is None:
        raise ValueError(
            "Give dim, the number of dimensions of the target (or model_args, for a NumPyro model)."
        )
    dim = check_dim(dim)
    stochastic = _takes_key(fn)
    target, trouble = _trace(fn, dim, dtype, stochastic)
    if target is None and isinstance(fn, FunctionOfData):
        fn.with_numbers_fixed()
        target, trouble = _trace(fn, dim, dtype, stochastic)
    if target is not None:
        return DetectedTarget(target)
    if stochastic:
        raise TargetError(
            f"The target takes a key, so it must be a JAX function, but tracing it raised {trouble}."
        )
    return _probe(fn, dim, probe, trouble)


def without_gradient(target: AbstractTarget, dtype: Any) -> DetectedTarget | None:
    """The target with values only, if JAX cannot differentiate it; None if it can."""
    if not isinstance(target, JaxTarget) or target.values_only or target.returns_gradient:
        return None
    x = jax.ShapeDtypeStruct((2, target.dim), dtype)
    try:
        arrays, rest = parted(target)
        _differentiated.eval_shape(rest, arrays, *_key_type(True), x)
    except Exception as error:
        values = dataclasses.replace(target, values_only=True)
        return DetectedTarget(values, why=f"JAX cannot differentiate it: {_short(error)}")
    return None


@functools.partial(jax.jit, static_argnums=0)
def _differentiated(rest: Rest, arrays: tuple[Any, ...], key: PRNGKey, x: Array) -> Any:
    """With gradients; compiled never, but traced once for targets that differ in their data only."""
    return rest.joined(arrays).evaluate(key, x, 2, needs_gradient=True)


# Inside JAX -------------------------------------------------------------------------------------


def _takes_key(fn: Callable[..., Any]) -> bool:
    required = required_arguments(fn)
    return required is not None and len(required) == 2 and required[0] in _KEY_NAMES


def required_arguments(fn: Callable[..., Any]) -> list[str] | None:
    """Names of the required positional arguments; None if the signature is not known."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind in positional]


def _trace(fn: Callable[..., Any], dim: int, dtype: Any, stochastic: bool) -> tuple[JaxTarget | None, str]:
    """The target if JAX can trace it, otherwise the reason why not."""
    raised: list[str] = []
    returned: list[tuple[tuple[int, ...], list[str]]] = []
    outside = False
    cases: list[tuple[bool, tuple[int, ...]]] = [(False, (dim,)), (True, (dim + 1, dim))]
    for batched, shape in cases:
        try:
            point = jax.ShapeDtypeStruct(shape, dtype)
            # JAX caches traces by the function's identity: a new object is traced again.
            again = functools.partial(fn)
            program, out = jax.make_jaxpr(again, return_shape=True)(*_key_type(stochastic), point)
        except Exception as error:
            raised.append(_short(error))
            outside = outside or isinstance(error, jax.errors.JAXTypeError)
            continue
        if not depends_on_last_argument(program):
            # The function may have caught JAX's error and returned something else.
            raised.append("its traced value does not depend on the point")
            outside = True
            continue
        gradient = isinstance(out, (tuple, list)) and len(out) == 2
        parts = list(out) if gradient else [out]
        shapes = [getattr(p, "shape", None) for p in parts]
        if shapes == [shape[:-1], shape][: len(parts)]:
            for p in parts:
                _check_dtype(p.dtype)
            same = _shared(fn, (*_key_type(stochastic), point), batched, (program, out))
            kind = {"batched": batched, "returns_gradient": gradient, "stochastic": stochastic}
            return JaxTarget(fn=same, dim=dim, **kind), ""
        returned.append((shape, [_show_shape(p) for p in parts]))
    if returned and not outside:
        # JAX could trace it, so it would return the same on the host.
        shape, got = returned[0]
        example = "point" if len(shape) == 1 else "batch"
        hint = " (take [0] of it)" if got == ["shape [1]"] else ""
        raise TargetError(
            f"The target must return one number per point, or (number, gradient); for a {example} of shape "
            f"{list(shape)} it returned {' and '.join(got)}{hint}."
        )
    return None, raised[0] if raised else ""


def _shared(fn: Any, types: tuple[Any, ...], batched: bool, traced: Any) -> Callable[..., Any]:
    """The function as one that shares its compiled programs with others of the same operations."""
    if not batched and not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(fn)):
        # The number of points of a batch may change, so its program alone is not the function.
        found = with_data_apart(fn, *types, traced=traced)
        if found is not None:
            return found
    if isinstance(fn, FunctionOfData):
        bound = fn.apart()
        try:
            program = jax.make_jaxpr(lambda bound, *args: bound(*args))(bound, *types)
            hash(jax.tree.structure(bound))
        except (TypeError, jax.errors.JAXTypeError):
            pass  # some of the data decide what the function does
        else:
            return dataclasses.replace(bound, fn=stable_identity(fn.fn, program))
    return stable_identity(fn, traced[0])


def _check_jax_target(target: JaxTarget, dtype: Any) -> None:
    """Raise unless the target is of the kind that the user declared."""
    shape = (target.dim + 1, target.dim) if target.batched else (target.dim,)
    try:
        out = jax.eval_shape(target.fn, *_key_type(target.stochastic), jax.ShapeDtypeStruct(shape, dtype))
    except Exception as error:
        raise TargetError(f"The target could not be traced by JAX: {_short(error)}.") from error
    wanted = [shape[:-1], shape] if target.returns_gradient else [shape[:-1]]
    parts = list(out) if isinstance(out, (tuple, list)) else [out]
    if [getattr(p, "shape", None) for p in parts] != wanted:
        raise TargetError(
            f"The target must return {' and '.join(f'shape {list(w)}' for w in wanted)} for points of shape "
            f"{list(shape)}, it returned {' and '.join(_show_shape(p) for p in parts)}."
        )
    for p in parts:
        _check_dtype(p.dtype)


def _check_dtype(dtype: Any) -> None:
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TargetError(f"The target must return real (floating-point) numbers, it returns {dtype}.")


def _key_type(stochastic: bool) -> tuple[Any, ...]:
    return (jax.eval_shape(lambda: jax.random.key(0)),) if stochastic else ()


# On the host ------------------------------------------------------------------------------------


def _probe(fn: Callable[..., Any], dim: int, probe: np.ndarray, trouble: str) -> DetectedTarget:
    point = np.array(probe, dtype=np.float64).reshape(dim)
    copies = 3 if dim == 2 else 2  # differs from the dimension
    tries = [(False, point, 1), (True, np.tile(point, (copies, 1)), copies)]
    call: Callable[..., Any] = fn
    build: Callable[..., HostTarget] = functools.partial(HostTarget, fn=fn, dim=dim)
    if isinstance(fn, AbstractTwoForms):
        tries, call, build = tries[:1], fn.on_host, fn.host_target
    spent, problem = 0, None
    for batched, x, n in tries:
        spent += n
        try:
            out = call(x.copy())
        except Exception as error:
            problem = problem or error
            continue
        gradient = isinstance(out, (tuple, list)) and len(out) == 2
        target = HostTarget(fn=_Constant(out), dim=dim, batched=batched, returns_gradient=gradient)
        try:
            target.call(x.reshape(n, dim), needs_gradient=gradient)
        except TargetError as error:
            problem = problem if isinstance(problem, TargetError) else error
            continue
        known = build(batched=batched, returns_gradient=gradient)
        return DetectedTarget(known, spent, f"JAX cannot trace it: {trouble}")
    if isinstance(problem, TargetError):
        raise problem
    assert problem is not None
    raise TargetError(
        f"The target could not be evaluated at the point {_show(point)}: it raised "
        f"{type(problem).__name__}: {problem}{_arguments(fn)}"
    ) from problem


class _Constant:
    """Returns what the function returned at the probe, to check it as a target's output."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, x: np.ndarray) -> Any:
        return self.value


def _arguments(fn: Callable[..., Any]) -> str:
    required = required_arguments(fn)
    if required is None or len(required) < 2:
        return ""
    return (
        f" (it takes {', '.join(required)}: name the first one 'key' if it is a random key, "
        "and give data as data=...)"
    )


def _short(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0].rstrip('.')}" if text else type(error).__name__


def _show(point: np.ndarray) -> str:
    return np.array2string(point, precision=3, threshold=6)


def _show_shape(part: Any) -> str:
    return f"shape {list(part.shape)}" if hasattr(part, "shape") else f"a {type(part).__name__}"
