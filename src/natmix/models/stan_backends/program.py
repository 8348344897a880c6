"""The text of a Stan program."""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

_BLOCK = re.compile(r"\b(parameters|model)\s*\{")


class Program(NamedTuple):
    """A program and where it is from.

    Attributes:
        code: in Stan.
        path: its file, if it has one; ``#include`` searches its folder.
    """

    code: str
    path: Path | None = None

    @classmethod
    def read(cls, given: Any) -> "Program":
        """From the code itself or the path of a ``.stan`` file."""
        if isinstance(given, str) and _BLOCK.search(given):
            return cls(given)
        if not isinstance(given, (str, os.PathLike)):
            raise ValueError(f"Give a Stan program or the path of one, got {type(given).__name__}.")
        path = Path(given).expanduser()
        if path.suffix != ".stan":
            raise ValueError(
                "Give a Stan program, with its block 'model {...}', or the path of a .stan file, "
                f"got {_short(given)}."
            )
        try:
            return cls(path.read_text(encoding="utf-8"), path.resolve())
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"The Stan program {str(path)!r} cannot be read: {error}.") from None


def is_program(target: Any) -> bool:
    """Whether it is the code of a Stan program, or the path of one."""
    if isinstance(target, str) and _BLOCK.search(target):
        return True
    return isinstance(target, (str, os.PathLike)) and str(target).endswith(".stan")


def _short(given: Any) -> str:
    text = str(given)
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
