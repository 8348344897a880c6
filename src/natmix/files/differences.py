"""What differs between two objects of plain data."""

from collections.abc import Mapping
from typing import Any


def differences(
    there: Any, here: Any, ignore: tuple[str, ...] = (), path: str = ""
) -> list[tuple[str, Any, Any]]:
    """(name, there, here) of everything that differs between two objects, by dotted name."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        names = [k for k in dict.fromkeys([*there, *here]) if k not in ignore]
        return [
            found
            for name in names
            for found in differences(there.get(name), here.get(name), (), f"{path}.{name}" if path else name)
        ]
    return [] if there == here else [(path, there, here)]
