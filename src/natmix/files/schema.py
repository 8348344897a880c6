"""Plain data against a description by types: what files hold that people write or that could be anything."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np
from jaxtyping import AbstractArray

_WORDS = {
    float: "a number",
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    types.NoneType: "null",
    list: "a list",
    tuple: "a list",
    dict: "an object",
    Mapping: "an object",
    Sequence: "a list",
}
_SHORT = 40


class SchemaError(ValueError):
    """Plain data do not fit their description; the message begins with the name of the entry."""


def conform(hint: Any, value: Any, key: str = "it") -> Any:
    """The value as the type ``hint`` describes it, made of plain data.

    Args:
        hint: numbers, text, None, unions, `Literal`, lists, tuples, dictionaries, arrays, dataclasses,
            `NamedTuple` and `TypedDict`, of which unknown and missing entries are errors.
        value: as a JSON parser returns it.
        key: the name of the value.

    Raises:
        SchemaError: it does not fit.
    """
    if hint is Any:
        return value
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, key)
    if origin is Literal:
        return value if value in arguments else _refuse(hint, value, key)
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return _array(hint, value, key)
    if _fields(hint) is not None:
        return _record(hint, value, key)
    if origin in (list, tuple, Sequence):
        return _sequence(origin, arguments, value, key)
    if origin in (dict, Mapping):
        entries = value.items() if isinstance(value, dict) else _refuse(hint, value, key)
        return {name: conform(arguments[1], entry, _below(key, name)) for name, entry in entries}
    if hint is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            _refuse(hint, value, key)
    return value if type(value) is (types.NoneType if hint is None else hint) else _refuse(hint, value, key)


def read_object(path: Any, hint: Any, value: Any) -> Any:
    """The same for the content of a file, which is named in the error."""
    try:
        return conform(hint, value, "")
    except SchemaError as error:
        raise ValueError(f"{path} is damaged or was edited wrongly: {error}.") from error


def _one_of(hints: tuple[Any, ...], value: Any, key: str) -> Any:
    errors = []
    for hint in hints:
        try:
            return conform(hint, value, key)
        except SchemaError as error:
            errors.append(error)
    deeper = [e for h, e in zip(hints, errors, strict=True) if _fields(h) is not None and value is not None]
    if deeper:
        raise deeper[0]
    _refuse(Union[hints], value, key)  # noqa: UP007


def _sequence(origin: Any, arguments: tuple[Any, ...], value: Any, key: str) -> Any:
    if not isinstance(value, (list, tuple)):
        _refuse(origin, value, key)
    if origin is tuple and arguments[-1:] != (Ellipsis,):
        if len(value) != len(arguments):
            raise SchemaError(f"{key} must have {len(arguments)} entries, not {len(value)}")
        hints: Sequence[Any] = arguments
    else:
        hints = [arguments[0]] * len(value)
    found = [conform(h, v, f"{key}[{i}]") for i, (h, v) in enumerate(zip(hints, value, strict=True))]
    return tuple(found) if origin is tuple else found


def _record(hint: Any, value: Any, key: str) -> Any:
    fields = _fields(hint)
    assert fields is not None
    if isinstance(value, list) and issubclass(hint, tuple):
        value = dict(zip(fields, value, strict=False)) if len(value) == len(fields) else value
    if not isinstance(value, dict):
        _refuse(hint, value, key)
    unknown = [name for name in value if name not in fields]
    if unknown:
        raise SchemaError(f"{_below(key, unknown[0])} is not known, only {', '.join(fields)}")
    missing = [name for name, needed in fields.items() if needed and name not in value]
    if missing:
        raise SchemaError(f"there is no {_below(key, missing[0])}")
    hints = get_type_hints(hint)
    found = {name: conform(hints[name], entry, _below(key, name)) for name, entry in value.items()}
    if typing.is_typeddict(hint):
        return found
    try:
        return hint(**found)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{key}: {str(error).removesuffix('.')}" if key else str(error)) from error


def _fields(hint: Any) -> dict[str, bool] | None:
    """Names of a record's entries, and whether they are needed; None if it is no record."""
    if not isinstance(hint, type):
        return None
    if typing.is_typeddict(hint):
        return {name: name in hint.__required_keys__ for name in hint.__annotations__}  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(hint):
        none = dataclasses.MISSING
        known = [f for f in dataclasses.fields(hint) if f.init]
        return {f.name: f.default is none and f.default_factory is none for f in known}
    if issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return {name: name not in hint._field_defaults for name in hint._fields}  # type: ignore[attr-defined]
    return None


def _array(hint: Any, value: Any, key: str) -> Any:
    try:
        array = value if isinstance(value, np.ndarray) else np.array(value, float)
    except (TypeError, ValueError):
        _refuse(hint, value, key)
    return array if isinstance(array, hint) else _refuse(hint, value, key)


def _refuse(hint: Any, value: Any, key: str) -> NoReturn:
    text = repr(value)
    short = text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"
    raise SchemaError(f"{key or 'it'} must be {_words(hint)}, not {short}")


def _words(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(h) for h in get_args(hint))
    if origin is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if _fields(hint) is not None:
        return "an object"
    return _WORDS.get(origin or hint, "an array of numbers")


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else str(name)
