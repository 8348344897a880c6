"""How a fit gets its initial mixture: one interface, one file per start, found by name."""

from natmix.initialization.starts.base import (
    AbstractSearchStart,
    AbstractStart,
    Found,
    Initialization,
    Setting,
)
from natmix.initialization.starts.pathfinder import PathfinderStart
from natmix.initialization.starts.region import RegionStart
from natmix.initialization.starts.tempered import TemperedStart

__all__ = [
    "STARTS",
    "AbstractSearchStart",
    "AbstractStart",
    "Found",
    "Initialization",
    "PathfinderStart",
    "RegionStart",
    "Setting",
    "TemperedStart",
    "register",
]

STARTS: dict[str, AbstractStart] = {
    RegionStart.name: RegionStart(),
    PathfinderStart.name: PathfinderStart(),
    TemperedStart.name: TemperedStart(),
}
"""What ``fit(start=name)`` accepts."""


def register(start: AbstractStart) -> AbstractStart:
    """Make a start known by its `name`.

    Raises:
        ValueError: another start has this name.
    """
    if STARTS.setdefault(start.name, start) is not start:
        raise ValueError(
            f"There is a start {start.name!r} already: give {type(start).__name__} another name."
        )
    return start
