"""Functions with their data taken out, so that the same function of other data is not compiled again.

JAX compiles the arrays that a function refers to into its program, and finds the program by the function's
identity. Here a function is traced, its arrays become arguments, and the program is found by its operations.
"""

import functools
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array

from natmix.kernels.compilation import quick_jit

_TRUSTED = ("jax", "numpyro", "pytensor", "pymc")
"""Packages whose own derivative rules refer to no data."""
_GENERIC_RULES = ("custom_derivatives.py", "solves.py")
"""Files of theirs with rules made of a user's functions."""


class TracedProgram:
    """The operations of a function, equal to those of another function that computes the same of its data."""

    def __init__(self, jaxpr: core.ClosedJaxpr, structure: Any) -> None:
        self._run = core.jaxpr_as_fun(jaxpr)
        self._structure = structure
        self._types = [(v.aval.shape, v.aval.dtype) for v in jaxpr.jaxpr.invars]
        self._key = fingerprint(jaxpr), structure

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TracedProgram) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __call__(self, *args: Any) -> Any:
        """The outputs for the data and the arguments, in the types that were traced."""
        values = [
            a if getattr(a, "dtype", None) == dtype else jnp.asarray(a, dtype)
            for a, (_, dtype) in zip(args, self._types, strict=True)
        ]
        return jax.tree.unflatten(self._structure, self._run(*values))


class _Origin:
    """The function as the user gave it, for pickling alone: it does not tell one program from another."""

    def __init__(self, fn: Callable[..., Any], types: tuple[Any, ...]) -> None:
        self.fn, self.types = fn, types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Origin)

    def __hash__(self) -> int:
        return hash(_Origin)


class TracedFunction(eqx.Module):
    """A function of arrays as its program and its data.

    Attributes:
        program: its operations.
        data: the arrays that it refers to, arguments of the compiled program.
        origin: the function itself.
    """

    program: TracedProgram = eqx.field(static=True)
    data: tuple[Array, ...]
    origin: _Origin = eqx.field(static=True)

    def __call__(self, *args: Any) -> Any:
        return self.program(*self.data, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.origin.fn, tuple((t.shape, str(t.dtype)) for t in self.origin.types))


def _rebuilt(fn: Callable[..., Any], types: tuple[tuple[tuple[int, ...], str], ...]) -> Any:
    return with_data_apart(fn, *(jax.ShapeDtypeStruct(shape, _dtype(name)) for shape, name in types))


def _dtype(name: str) -> Any:
    return jax.eval_shape(lambda: jax.random.key(0)).dtype if name.startswith("key<") else jnp.dtype(name)


def with_data_apart(
    fn: Callable[..., Any], *types: jax.ShapeDtypeStruct, traced: tuple[core.ClosedJaxpr, Any] | None = None
) -> TracedFunction | None:
    """The function of arrays of these types with its data as arguments.

    None if its operations do not tell all that it computes: derivative rules of the user's own, or callbacks.

    Args:
        fn: the function.
        *types: of its arguments.
        traced: its program and the shapes of its outputs, if it has been traced already.
    """
    # JAX caches traces by the function's identity: a new object is traced again.
    traced = traced or jax.make_jaxpr(functools.partial(fn), return_shape=True)(*types)
    closed, outputs = traced
    if _is_opaque(closed.jaxpr):
        return None
    data = [jnp.asarray(value) for value in _data(closed)]
    flat = jax.make_jaxpr(functools.partial(_evaluate, closed))(data, *types)
    return TracedFunction(TracedProgram(flat, jax.tree.structure(outputs)), tuple(data), _Origin(fn, types))


def compiled_call(fn: Callable[..., Any], *args: Array) -> Any:
    """``fn(*args)``, compiled; not again for a function that differs in its data only."""
    types = [jax.ShapeDtypeStruct(jnp.shape(a), a.dtype) for a in args]
    return _call(with_data_apart(fn, *types) or functools.partial(fn), *args)


@quick_jit()
def _call(fn: Callable[..., Any], *args: Array) -> Any:
    return fn(*args)


# Data and operations ----------------------------------------------------------------------------


def _data(closed: core.ClosedJaxpr) -> Iterator[Any]:
    """The arrays that a program refers to, those of compiled functions that it calls included."""
    yield from closed.consts
    for equation in closed.jaxpr.eqns:
        inner = _called(equation)
        if inner is not None:
            yield from _data(inner)


def _called(equation: Any) -> core.ClosedJaxpr | None:
    """The program of a compiled function that is called here and refers to arrays."""
    if equation.primitive.name not in ("jit", "pjit"):
        return None
    inner = equation.params["jaxpr"]
    return inner if next(_data(inner), None) is not None else None


def _evaluate(closed: core.ClosedJaxpr, data: list[Array], *args: Any) -> list[Any]:
    """The outputs of a program with other arrays in place of its own."""
    if len(data) == len(closed.consts):
        return core.jaxpr_as_fun(core.ClosedJaxpr(closed.jaxpr, data))(*args)
    left = iter(data)
    outputs = _outputs(closed, left, args)
    assert next(left, None) is None
    return outputs


def _outputs(closed: core.ClosedJaxpr, data: Iterator[Array], args: Any) -> list[Any]:
    jaxpr = closed.jaxpr
    known = dict(zip(jaxpr.constvars, [next(data) for _ in jaxpr.constvars], strict=True))
    known |= dict(zip(jaxpr.invars, args, strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, core.Literal) else known[variable]

    for equation in jaxpr.eqns:
        values = [read(v) for v in equation.invars]
        inner = _called(equation)
        if inner is not None:
            found = _outputs(inner, data, values)
        else:
            parameters = equation.primitive.get_bind_params(equation.params)
            functions, parameters = parameters if isinstance(parameters, tuple) else ((), parameters)
            found = equation.primitive.bind(*functions, *values, **parameters)
            found = found if equation.primitive.multiple_results else [found]
        known |= dict(zip(equation.outvars, found, strict=True))
    return [read(v) for v in jaxpr.outvars]


# What tells programs apart ----------------------------------------------------------------------


def fingerprint(traced: core.ClosedJaxpr) -> str:
    """A digest of operations and constants."""
    digest = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", str(traced.jaxpr)).encode())
    for value in _constants(traced):
        array = np.asarray(value)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _constants(traced: Any) -> Iterator[Any]:
    """All constants of a program, those of its inner programs included."""
    yield from getattr(traced, "consts", ())
    jaxpr = getattr(traced, "jaxpr", traced)
    for equation in jaxpr.eqns:
        yield from (v.val for v in equation.invars if isinstance(v, core.Literal))
        for inner in _inner(equation.params.values()):
            yield from _constants(inner)
    yield from (v.val for v in jaxpr.outvars if isinstance(v, core.Literal))


def _inner(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _inner(value)
        elif hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns"):
            yield value


def _is_opaque(jaxpr: Any) -> bool:
    """Whether a program refers to functions of the user's, which it does not show."""
    for equation in jaxpr.eqns:
        if equation.primitive.name.startswith("custom_vjp"):
            return True
        for name, value in equation.params.items():
            if name == "jvp_jaxpr_fun":
                if not _is_trusted_rule(value):
                    return True
            elif _hides_function(value):
                return True
        if any(_is_opaque(getattr(inner, "jaxpr", inner)) for inner in _inner(equation.params.values())):
            return True
    return False


def _hides_function(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_hides_function, value))
    if isinstance(value, type) or hasattr(value, "eqns") or hasattr(value, "jaxpr"):
        return False
    text = repr(value)
    return isinstance(value, functools.partial) or text.startswith("Wrapped") or " at 0x" in text


def _is_trusted_rule(rule: Any) -> bool:
    source = getattr(getattr(rule, "debug_info", None), "func_src_info", None) or ""
    place = Path(str(source).partition(" at ")[2].rpartition(":")[0])
    return place.name not in _GENERIC_RULES and any(f in place.parents for f in _trusted_folders())


def _trusted_folders() -> Iterator[Path]:
    for name in _TRUSTED:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            yield Path(file).parent
