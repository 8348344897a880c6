"""A function of a point and of data as a function of a point."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class FunctionOfData:
    """``fn(x, data)``, or ``fn(key, x, data)``, for fixed data; outside JAX the data are passed on as given.

    Args:
        fn: the function.
        data: numbers and arrays in tuples, lists and dictionaries, or whatever ``fn`` takes.
    """

    def __init__(self, fn: Callable[..., Any], data: Any) -> None:
        self.fn, self.data = fn, data
        signature = _without_data(fn)
        if signature is not None:
            self.__signature__ = signature

    def __call__(self, *args: Any) -> Any:
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            return self.fn(*args, self.data)
        return self.fn(*args, self.traced_data)

    @functools.cached_property
    def _takes_numbers(self) -> bool:
        """Whether the function can be traced with its numbers as unknown ones; assumed until it fails."""
        return True

    @property
    def traced_data(self) -> Any:
        """The data while the function is traced: its numbers are data of the program, like its arrays."""
        return numbers_as_arrays(self.data) if self._takes_numbers else self.data

    def with_numbers_fixed(self) -> None:
        """From now on the numbers among the data are constants: the function decides by them what it does."""
        self.__dict__["_takes_numbers"] = False

    def apart(self) -> "BoundFunction":
        """The function with its arrays and real numbers as leaves."""
        arrays, rest = eqx.partition(self.data, _is_numeric)
        return BoundFunction(self.fn, jax.tree.map(jnp.asarray, arrays), rest)

    def __reduce__(self) -> tuple[Any, ...]:
        return FunctionOfData, (self.fn, self.data)


class BoundFunction(eqx.Module):
    """A function of points and data, whose arrays are leaves of a tree.

    Attributes:
        fn: the function.
        arrays: its data that are numbers.
        rest: the other data.
    """

    fn: Callable[..., Any] = eqx.field(static=True)
    arrays: Any
    rest: Any = eqx.field(static=True)

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args, eqx.combine(self.arrays, self.rest))


def numbers_as_arrays(tree: Any) -> Any:
    """Real numbers as arrays without axes; in a function that is traced these are not constants."""
    return jax.tree.map(lambda leaf: _as_array(leaf) if is_real_number(leaf) else leaf, tree)


def is_real_number(leaf: Any) -> bool:
    """Whether it is one real number: whole ones often are sizes."""
    if isinstance(leaf, (np.ndarray, np.generic, jax.Array)):
        return leaf.ndim == 0 and bool(jnp.issubdtype(leaf.dtype, jnp.floating))
    return isinstance(leaf, float)


def _as_array(number: Any) -> jax.Array:
    # An array of one entry is data of a traced function; a number would be a constant of its operations.
    dtype = getattr(number, "dtype", None) or jnp.result_type(float)
    return jnp.asarray(np.asarray([number], jax.dtypes.canonicalize_dtype(dtype)))[0]


def _is_numeric(leaf: Any) -> bool:
    return eqx.is_array_like(leaf) and not isinstance(leaf, (bool, int, complex))


def _without_data(fn: Callable[..., Any]) -> inspect.Signature | None:
    """The signature without the data, the last positional argument that must be given; None if unknown."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    parameters = list(signature.parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    places = [i for i, p in enumerate(parameters) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [i for i in places if parameters[i].default is inspect.Parameter.empty]
    if len(places) < 2:
        raise ValueError(
            f"With data= the target is called as f(x, data), but it takes {signature}: "
            "give it a second argument."
        )
    del parameters[required[-1] if len(required) > 1 else places[1]]
    return signature.replace(parameters=parameters)
