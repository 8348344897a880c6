"""Hyperparameters of options: declared once, checked at construction, listed by ``natmix options``.

Continuous hyperparameters become arrays, so that changing one never recompiles; those that decide
shapes or branches stay Python values and are static.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


def real(
    default: float, doc: str, *, low: float = -np.inf, high: float = np.inf, strict: bool = False
) -> Any:
    """A continuous hyperparameter in [low, high], or (low, high] if ``strict``."""
    meta = {"doc": doc, "low": low, "high": high, "strict": strict, "default": default}
    return eqx.field(default=default, converter=_to_real, metadata=meta)


def integer(default: int, doc: str, *, low: int, high: float = np.inf) -> Any:
    """An integer that decides shapes: static."""
    meta = {"doc": doc, "low": low, "high": high, "strict": False, "integer": True, "default": default}
    return eqx.field(default=default, static=True, metadata=meta)


def count(default: int, doc: str, *, low: int) -> Any:
    """An integer that decides no shape: an array, so that changing it never recompiles."""
    meta = {"doc": doc, "low": low, "high": 2**31 - 1, "strict": False, "integer": True, "default": default}
    return eqx.field(default=default, converter=_to_count, metadata=meta)


def ratio(default: float, doc: str, *, low: float) -> Any:
    """A real number that decides shapes: static."""
    meta = {"doc": doc, "low": low, "high": 1e6, "strict": False, "default": default}
    return eqx.field(default=default, static=True, metadata=meta)


def flag(default: bool, doc: str) -> Any:
    """A switch: static."""
    return eqx.field(default=default, static=True, metadata={"doc": doc, "flag": True, "default": default})


def series(default: tuple[float, ...], doc: str, *, low: float) -> Any:
    """A few real numbers, used in turn: static."""
    meta = {"doc": doc, "low": low, "high": np.inf, "strict": False, "series": True, "default": default}
    return eqx.field(default=default, converter=_to_series, static=True, metadata=meta)


def actual_numbers() -> Any:
    """The field for what `Option.masked` puts in the place of static hyperparameters; it is none itself."""
    return eqx.field(default=None, kw_only=True, metadata={"masks": True})


class ShapeBounds(NamedTuple):
    """Bounds that replace numbers which decide shapes, so that algorithms with other numbers share a program.

    Attributes:
        least: the smallest bound of a number of samples and the like.
        growth: the quotient of two bounds, at least 2.
        candidates: the smallest bound of a number of candidates; 0: as of the others.
    """

    least: int
    growth: int
    candidates: int = 0

    def of(self, number: int) -> int:
        """The bound of a number."""
        bound = self.least
        while bound < number:
            bound *= self.growth
        return bound

    def of_candidates(self, number: int) -> int:
        """The bound of a number of candidates; none remain none."""
        return max(self.of(number), self.candidates) if number else 0

    def of_ratio(self, ratio: float) -> float:
        """The bound of a positive ratio."""
        bound = 1.0
        while bound < ratio:
            bound *= self.growth
        return bound


class Option(eqx.Module):
    """One option of one of the seven modules.

    Attributes:
        letter: its letter in codenames; the letters of all options differ.
        title: its name in the paper's tables.
    """

    letter: ClassVar[str]
    title: ClassVar[str]

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            if "doc" in field.metadata:
                _check(type(self).__name__, field, getattr(self, field.name))

    def masked(self, bounds: ShapeBounds) -> Self:
        """The same option, whose numbers that decide shapes are arrays below a static bound where it can.

        Options with other numbers below the same bounds share a compiled program; masks give them the results
        of their own numbers.
        """
        return self

    @classmethod
    def hyperparameters(cls) -> list[tuple[str, Any, str]]:
        """(name, default, what it does) of every hyperparameter."""
        return [
            (f.name, f.metadata["default"], f.metadata["doc"])
            for f in dataclasses.fields(cls)
            if "doc" in f.metadata
        ]

    @classmethod
    def check_value(cls, name: str, value: Any) -> None:
        """Raise a ValueError unless a hyperparameter may have this value, whatever the others are."""
        field = next(f for f in dataclasses.fields(cls) if f.name == name)
        _check(cls.__name__, field, value)

    def settings(self) -> dict[str, Any]:
        """The value of every hyperparameter, as plain Python."""
        values = {name: getattr(self, name) for name, _, _ in self.hyperparameters()}
        plain = (bool, int, float)
        return {
            name: v if isinstance(v, plain) else list(v) if isinstance(v, tuple) else v.item()
            for name, v in values.items()
        }


def _to_count(x: Any) -> Any:
    if isinstance(x, bool) or not isinstance(x, (int, np.integer)) or not -(2**31) <= x < 2**31:
        return x
    return jnp.asarray(np.int32(x))


def _to_real(x: Any) -> Any:
    if x is None or isinstance(x, (jax.Array, str)):
        return x
    try:
        return jnp.asarray(np.asarray(x, dtype=jnp.result_type(float)))
    except (TypeError, ValueError):
        return x


def _to_series(x: Any) -> Any:
    try:
        return tuple(float(v) for v in x)
    except (TypeError, ValueError):
        return x


def _check(owner: str, field: dataclasses.Field, value: Any) -> None:
    meta = field.metadata
    if isinstance(value, jax.core.Tracer):
        return
    if meta.get("flag"):
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{owner}: {field.name} must be True or False, got {value!r}.")
        return
    if meta.get("series"):
        if not isinstance(value, tuple) or not value:
            raise ValueError(f"{owner}: {field.name} must be a list of numbers, got {value!r}.")
    elif isinstance(value, str) or not hasattr(value, "__float__"):
        raise ValueError(f"{owner}: {field.name} must be a number, got {value!r}.")
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if meta.get("integer") and not is_integer and not _is_integer_array(value):
        raise ValueError(f"{owner}: {field.name} must be a whole number, got {value!r}.")
    values = np.asarray(value, dtype=float)
    if values.ndim and not meta.get("series"):
        raise ValueError(
            f"{owner}: {field.name} must be a single number, got an array of shape {values.shape}."
        )
    low, high, strict = meta["low"], meta["high"], meta["strict"]
    if (
        np.isnan(values).any()
        or (values < low).any()
        or (values > high).any()
        or (strict and (values == low).any())
    ):
        left = "(" if strict or low == -np.inf else "["
        right = ")" if high == np.inf else "]"
        raise ValueError(
            f"{owner}: {field.name} must lie in {left}{low:g}, {high:g}{right}, got {_show(values)}."
        )


def _is_integer_array(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.integer)


def _show(values: np.ndarray) -> str:
    return f"{values.item():g}" if values.ndim == 0 else str(values)
