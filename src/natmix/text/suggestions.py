"""What the user may have meant by a name that nobody knows."""

import difflib
from collections.abc import Iterable

_LEAST = 0.6
"""Names are alike from this share of common letters on."""
_MOST = 40
"""More names than these are not listed."""


def closest(name: object, known: Iterable[str]) -> str | None:
    """The known name most like this one, whatever the case of its letters; of several the first."""
    matcher = difflib.SequenceMatcher()
    matcher.set_seq2(_plain(str(name)))
    best, found = _LEAST, None
    for other in known:
        matcher.set_seq1(_plain(str(other)))
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, found = matcher.ratio(), other
    return found


def meant(name: object, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?``, to end an error; empty where no known name is like this one."""
    found = closest(name, known)
    return "" if found is None else f" Did you mean {found!r}?"


def hint(name: object, known: Iterable[str]) -> str:
    """A sentence to follow an error: the name that may be meant, otherwise all of them."""
    names = list(known)
    if sentence := meant(name, names):
        return sentence.lstrip()
    listed = ", ".join(names[:_MOST]) + (", …" if len(names) > _MOST else "")
    return f"There are {listed}." if names else "There are none."


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
