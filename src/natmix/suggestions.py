"""What the user may have meant by a name that nobody knows."""

import difflib
from collections.abc import Iterable

_MOST = 12
"""More names than these are not listed."""


def closest(name: object, known: Iterable[str]) -> str | None:
    """The known name most like this one, whatever the case of its letters and its separators."""
    plain = {_plain(other): other for other in known}
    found = difflib.get_close_matches(_plain(str(name)), plain, 1)
    return plain[found[0]] if found else None


def hint(name: object, known: Iterable[str]) -> str:
    """A sentence to follow an error: the name that may be meant, otherwise all of them."""
    names = list(known)
    meant = closest(name, names)
    if meant is not None:
        return f"Did you mean {meant!r}?"
    listed = ", ".join(names[:_MOST]) + (", …" if len(names) > _MOST else "")
    return f"There are {listed}." if names else "There are none."


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
