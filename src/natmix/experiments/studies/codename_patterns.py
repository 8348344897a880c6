"""Which of all codenames a pattern names: ``S?P[TIY][RFD]UX``."""

import fnmatch
import functools
import itertools
import re
from collections.abc import Iterable

from natmix.modules.codenames import MODULES, parse
from natmix.text.suggestions import meant

_SIGNS = "?*["
_POSITION = re.compile(r"\[[^\]]*\]|.")


@functools.cache
def all_codenames() -> tuple[str, ...]:
    """Every combination of options, its letters in the order of SAMTRON."""
    letters = [[option.letter for option in options] for options in MODULES.values()]
    return tuple(map("".join, itertools.product(*letters)))


def is_pattern(text: str) -> bool:
    """Whether it may name several codenames."""
    return any(sign in text for sign in _SIGNS)


def matching(text: str) -> tuple[str, ...]:
    """The codenames that a codename (its letters in any order) or a pattern names.

    A pattern has the modules' letters in the order of SAMTRON: ``?`` stands for any letter of its module,
    ``[TY]`` for one of these, ``*`` for any number of letters.

    Raises:
        ValueError: it names none.
    """
    if not is_pattern(text):
        options = parse(text)
        return ("".join(options[module].letter for module in MODULES),)
    found = tuple(name for name in all_codenames() if fnmatch.fnmatchcase(name, text.upper()))
    if not found:
        raise ValueError(
            f"The pattern {text!r} matches none of the {len(all_codenames())} codenames{_why(text)}"
        )
    return found


def matching_any(texts: Iterable[str]) -> tuple[str, ...]:
    """The codenames that any of these names, each once."""
    return tuple(dict.fromkeys(name for text in texts for name in matching(text)))


def _why(pattern: str) -> str:
    """Which position of a pattern is wrong, as the end of a sentence."""
    positions = _POSITION.findall(pattern.upper())
    if "*" in pattern:
        return f".{meant(pattern.replace('*', ''), all_codenames())}"
    if len(positions) != len(MODULES):
        return f": it has {len(positions)} positions, one is needed for each of the {len(MODULES)} modules."
    for place, (module, options) in enumerate(MODULES.items(), 1):
        letters = [option.letter for option in options]
        if not any(fnmatch.fnmatchcase(letter, positions[place - 1]) for letter in letters):
            words = module.replace("ng_", "").replace("_", " ")
            return (
                f": position {place}, the {words}, is {positions[place - 1]!r} and must be "
                f"{', '.join(letters[:-1])} or {letters[-1]}; the modules are in the order of SAMTRON."
            )
    return "."
