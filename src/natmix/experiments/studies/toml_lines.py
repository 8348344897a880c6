"""In which line of a TOML file an entry is, for errors; the standard library's parser does not say."""

import re
import tomllib
from typing import Any

_TABLE = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")

KeyPath = tuple[str | int, ...]


def parse_toml(text: str, path: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The content of a file, and the lines of its entries.

    Raises:
        ValueError: it is no TOML, with the line.
    """
    try:
        return tomllib.loads(text), lines_of(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is no TOML: {error}.") from error


def lines_of(text: str) -> dict[KeyPath, int]:
    """The line of each table and key, by its path; entries of an array of tables have their index in it."""
    found: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    here: KeyPath = ()
    for number, line in enumerate(text.splitlines(), 1):
        if table := _TABLE.match(line):
            here = _parts(table[2])
            if table[1] == "[[":
                counts[here] = counts.get(here, -1) + 1
                here = (*here, counts[here])
            found.setdefault(here, number)
        elif key := _KEY.match(line):
            names = _parts(key[1])
            for depth in range(1, len(names) + 1):
                found.setdefault((*here, *names[:depth]), number)
    return found


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int | None:
    """The line of an entry, or of the closest one around it."""
    for depth in range(len(path), 0, -1):
        if path[:depth] in lines:
            return lines[path[:depth]]
    return None


def _parts(dotted: str) -> tuple[str, ...]:
    parts = re.findall(r"\"[^\"]*\"|'[^']*'|[\w-]+", dotted)
    return tuple(part.strip("\"'") for part in parts)
