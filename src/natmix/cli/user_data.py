"""Data of a user's model from a file: JSON, TOML or NumPy's .npz."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ".json, .toml or .npz"


def read_data(path: Path) -> dict[str, Any]:
    """Numbers and arrays by name.

    Lists of numbers become arrays; text, true, false and null stay what they are.

    Raises:
        ValueError: the file cannot be read as such, in one sentence.
    """
    suffix = path.suffix.lower()
    if suffix not in (".json", ".toml", ".npz"):
        raise ValueError(f"Data are read from a {KINDS} file, got {path}.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if suffix == ".npz":
        return _from_npz(path)
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as {suffix[1:].upper()}: {error}.") from error
    if not isinstance(found, dict):
        kind = "a list" if isinstance(found, list) else "a single value"
        raise ValueError(f'{path} must hold data by name, {{"y": [1, 2]}}, but holds {kind}.')
    return {name: as_arrays(value, f"{path}: {name}") for name, value in found.items()}


def _from_npz(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: np.array(file[name]) for name in file.files}
    except Exception as error:  # a broken archive raises whatever
        raise ValueError(f"{path} cannot be read as .npz without Python objects: {error}") from error
    # A number stays one: a model may need its length of an array as an int.
    return {name: value.item() if value.ndim == 0 else value for name, value in found.items()}


def as_arrays(value: Any, name: str) -> Any:
    """Plain data with lists of numbers as arrays, inside objects too.

    Raises:
        ValueError: rows have different lengths, or a list mixes numbers with others.
    """
    if isinstance(value, Mapping):
        return {key: as_arrays(entry, f"{name}.{key}") for key, entry in value.items()}
    if not isinstance(value, list):
        return value
    if not _leaves(value) or all(isinstance(leaf, str) for leaf in _leaves(value)):
        return value if value else np.zeros(0)
    numbers = [np.nan if leaf is None else leaf for leaf in _leaves(value)]
    if not all(isinstance(leaf, (int, float)) for leaf in numbers):
        raise ValueError(f"{name} mixes numbers with other values; give them as separate entries.")
    try:
        return np.array(_with_nan(value))
    except ValueError:
        raise ValueError(f"{name} has rows of different lengths.") from None


def _leaves(value: Any) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    return [leaf for entry in value for leaf in _leaves(entry)]


def _with_nan(value: Any) -> Any:
    """Null in a list of numbers is NaN, a missing value, as pandas writes it."""
    if isinstance(value, list):
        return [_with_nan(entry) for entry in value]
    return np.nan if value is None else value


def parsed_option(value: str, what: str) -> Any:
    """The value of an option that is JSON.

    Args:
        value: the text.
        what: the option, for messages.
    """
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} takes JSON, got {value!r} ({error}).") from error


def data_option(value: str, what: str) -> Any:
    """The value of an option that is JSON, or the path of a file of data."""
    if Path(value).suffix.lower() in (".json", ".toml", ".npz"):
        return read_data(Path(value))
    return as_arrays(parsed_option(value, what), what)
