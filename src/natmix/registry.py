"""Registries: dictionaries of what can be found by name, each name taken once."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def add_entry(registry: dict[str, T], kind: str, name: str, entry: T) -> None:
    """Add an entry under a name.

    Raises:
        ValueError: another entry has this name.
    """
    if registry.setdefault(name, entry) is not entry:
        raise ValueError(f"There is a {kind} {name!r} already: choose another name.")


def registry_of(kind: str, entries: Iterable[T], name: Callable[[T], str]) -> dict[str, T]:
    """The entries by their names, in their order.

    Raises:
        ValueError: two entries have the same name.
    """
    registry: dict[str, T] = {}
    for entry in entries:
        add_entry(registry, kind, name(entry), entry)
    return registry
