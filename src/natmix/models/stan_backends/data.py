"""Data of a Stan program, as JSON."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Data(NamedTuple):
    """Data by name, and the same as JSON for Stan."""

    values: dict[str, Any]
    json: str


def as_data(data: Any) -> Data:
    """From a mapping of numbers and arrays, or the path of a JSON file."""
    if isinstance(data, (str, os.PathLike)):
        return _from_file(Path(data))
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        kind = type(data).__name__
        raise ValueError(
            f"data must be a dictionary such as {{'N': 8}} or the path of a JSON file, got {kind}."
        )
    values = {str(name): _plain(str(name), value) for name, value in data.items()}
    return Data(values, json.dumps({name: _lists(value) for name, value in values.items()}))


def check_data(data: Data, declared: Mapping[str, Any]) -> None:
    """Raise if the program declares data that are not there or have another form.

    ``declared`` are the inputs that ``stanc --info`` names: type and number of dimensions.
    """
    missing = [name for name in declared if name not in data.values]
    if missing:
        names = ", ".join(missing)
        raise ValueError(f"The Stan program declares data that were not given: {names}.")
    for name, form in declared.items():
        value = data.values[name]
        if not isinstance(value, np.ndarray) or form["type"] not in ("int", "real", "complex"):
            continue  # tuples: Stan itself checks them
        dimensions = form["dimensions"]
        if value.ndim != dimensions and value.size:
            raise ValueError(
                f"The data {name!r} must have {dimensions} dimensions, as the Stan program declares, "
                f"got shape {list(value.shape)}."
            )
        if form["type"] == "int" and value.dtype.kind not in "iu" and value.size:
            raise ValueError(
                f"The Stan program declares {name!r} as whole numbers, and the data are {value.dtype}: "
                f"give them as int."
            )
        if form["type"] == "real" and value.dtype.kind == "c":
            raise ValueError(f"The Stan program declares {name!r} as real, and the data are complex.")


def _from_file(path: Path) -> Data:
    try:
        text = path.expanduser().read_text(encoding="utf-8")
        values = json.loads(text)
    except (OSError, ValueError) as error:
        raise ValueError(f"The data {str(path)!r} cannot be read as JSON: {error}.") from None
    if not isinstance(values, dict):
        raise ValueError(f"The data {str(path)!r} must be a JSON object, name by name.")
    return Data({name: _of_json(value) for name, value in values.items()}, text)


def _of_json(value: Any) -> Any:
    try:
        array = np.asarray(value)
    except ValueError:
        return value
    return array if array.dtype.kind in "iufc" else value


def _plain(name: str, value: Any) -> Any:
    """An array of numbers; a tuple of Stan's, given as a tuple, part by part."""
    if isinstance(value, tuple):
        return tuple(_plain(f"{name}.{i}", part) for i, part in enumerate(value, 1))
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(
            f"The data {name!r} must be a number or an array with rows of equal length."
        ) from None
    if array.dtype.kind == "b":
        return array.astype(int)
    if array.dtype.kind not in "iufc":
        kind = (
            type(value).__name__
            if array.dtype.kind != "O" or not array.shape
            else f"{type(value).__name__} of objects"
        )
        raise ValueError(f"The data {name!r} must be a number or an array of numbers, got {kind}.")
    return array


def _lists(value: Any) -> Any:
    if isinstance(value, tuple):
        return {str(i): _lists(part) for i, part in enumerate(value, 1)}
    if value.dtype.kind == "c":
        value = np.stack([value.real, value.imag], axis=-1)
    return value.tolist()
