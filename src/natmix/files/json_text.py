"""Standard JSON: written so that every parser reads it, and read strictly."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from natmix.files.durable import write_text

_INFINITY = "natmix: infinity"
"""Stands for infinity until the text is written."""


def to_json(value: Any, indent: int | None = None) -> str:
    """Standard JSON: NaN is null, and infinity 1e999, which parsers read as infinity."""
    text = json.dumps(_without_nan(value), indent=indent, allow_nan=False)
    return text.replace(f'"{_INFINITY}"', "1e999").replace(f'"-{_INFINITY}"', "-1e999")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        return _INFINITY if value > 0 else f"-{_INFINITY}"
    if isinstance(value, Mapping):
        return {k: _without_nan(v) for k, v in value.items()}
    return [_without_nan(v) for v in value] if isinstance(value, (list, tuple)) else value


def with_nan(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """NaN for every null, in an object where null means nothing else."""
    return {name: math.nan if value is None else value for name, value in numbers.items()}


def parse_json(text: str | bytes) -> Any:
    """The value of standard JSON in which no name occurs twice.

    Raises:
        ValueError: it is something else.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        return json.loads(decoded, object_pairs_hook=_distinct, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def exact_json(value: Any) -> str:
    """Standard JSON from which `parse_exact_json` has every number back, NaN and infinity too."""
    return json.dumps(_by_name(value), allow_nan=False)


def parse_exact_json(text: str) -> Any:
    """The value that `exact_json` wrote.

    Raises:
        ValueError: the text is something else.
    """
    return json.loads(text, object_hook=_from_name)


def _by_name(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, Mapping):
        return {k: _by_name(v) for k, v in value.items()}
    return [_by_name(v) for v in value] if isinstance(value, (list, tuple)) else value


def _from_name(value: dict[str, Any]) -> Any:
    return float(value["float"]) if set(value) == {"float"} and isinstance(value["float"], str) else value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write indented JSON without a seal, for people to edit."""
    write_text(path, to_json(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file without a seal."""
    try:
        value = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: it holds no JSON object.")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(n for n in names if names.count(n) > 1)!r} occurs twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
