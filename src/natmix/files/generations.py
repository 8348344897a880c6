"""A file of which the generation before is kept, for the case that the newest cannot be read."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from natmix.files.seal import DamagedFileError

T = TypeVar("T")


def previous(path: Path) -> Path:
    """Where the generation before is."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def exists(path: Path) -> bool:
    """Whether there is any generation."""
    return path.is_file() or previous(path).is_file()


def newest(path: Path, read: Callable[[Path], T]) -> tuple[T, str]:
    """What ``read`` makes of the newest generation that is whole, and why it is not the last one.

    Raises:
        DamagedFileError: none is whole.
        FileNotFoundError: there is none.
    """
    try:
        return read(path), ""
    except (DamagedFileError, FileNotFoundError) as error:
        before = previous(path)
        if not before.is_file():
            raise
        try:
            found = read(before)
        except DamagedFileError as other:
            raise DamagedFileError(f"{error} The generation before does not help: {other}") from other
        return found, str(error)


def set_aside(path: Path) -> None:
    """Rename a damaged newest generation, so that it does not replace the one before."""
    if path.is_file():
        path.replace(path.with_name(f"{path.stem}.damaged{path.suffix}"))
