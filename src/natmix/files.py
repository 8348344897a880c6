"""Files that are replaced atomically, standard JSON, and the cache directory."""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_INFINITY = "natmix: infinity"
"""Stands for infinity until the text is written."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file name beside ``path``; on success the file replaces ``path``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write indented JSON."""
    with replacing(path) as temporary:
        temporary.write_text(to_json(value, indent=2) + "\n", encoding="utf-8")


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one JSON object per line."""
    with replacing(path) as temporary:
        temporary.write_text("".join(to_json(row) + "\n" for row in rows), encoding="utf-8")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a compressed ``.npz``."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        # NumPy 2.0 and 2.1 would store allow_pickle=False as one more array.
        np.savez_compressed(file, **dict(arrays))  # type: ignore[arg-type]


VARIABLE = "NATMIX_CACHE"


def cache_base() -> Path:
    """``$NATMIX_CACHE``, else ``$XDG_CACHE_HOME/natmix``, else ``~/.cache/natmix``."""
    own = os.environ.get(VARIABLE)
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "natmix"
