"""Registries: dictionaries of what can be found by name, each name taken once."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Entry = TypeVar("Entry")


def add_entry(registry: dict[str, Entry], kind: str, name: str, entry: Entry) -> None:
    """Add an entry under a name.

    Raises:
        ValueError: another entry has this name.
    """
    if registry.setdefault(name, entry) is not entry:
        raise ValueError(f"There is a {kind} {name!r} already: choose another name.")


def registry_of(kind: str, entries: Iterable[Entry], name: Callable[[Entry], str]) -> dict[str, Entry]:
    """The entries by their names, in their order.

    Raises:
        ValueError: two entries have the same name.
    """
    registry: dict[str, Entry] = {}
    for entry in entries:
        add_entry(registry, kind, name(entry), entry)
    return registry
