"""``--set module.option=value``, many times."""

import ast
from collections.abc import Container, Iterable
from typing import Any

from natmix.modules.codenames import MODULES
from natmix.text.suggestions import hint

_WHOLE_ALGORITHM = ("temperature", "zero_penalty")


def parse_overrides(
    settings: Iterable[str], words: Container[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hyperparameters by module, and options of the problem (``--set problem.option=value``).

    Of the problem's options ``words`` stay as they are typed: a word may be "true".
    """
    overrides: dict[str, Any] = {}
    problem: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        module, dot, option = name.strip().partition(".")
        if not equals or not module or not value.strip() or (dot and not option):
            raise ValueError(f"--set takes module.option=value, for example {_EXAMPLE}, got {text!r}.")
        if module in _WHOLE_ALGORITHM and not dot:
            overrides[module] = _value(value, text)
        elif module == "problem" and dot:
            problem[option] = value.strip() if option in words else _value(value, text)
        elif module in MODULES and dot:
            overrides.setdefault(module, {})[option] = _value(value, text)
        elif module in MODULES:
            raise ValueError(f"--set {text}: name an option of {module}, for example {_EXAMPLE}.")
        elif module in _WHOLE_ALGORITHM:
            raise ValueError(f"--set {text}: {module} has no options; write {module}=value.")
        else:
            raise ValueError(_unknown(module, text))
    return overrides, problem


_EXAMPLE = "component_stepsize.stepsize=0.05"


def _unknown(module: str, text: str) -> str:
    known = (*MODULES, "problem", *_WHOLE_ALGORITHM)
    return f"--set {text}: there is no module {module!r}. {hint(module, known)}"


def _value(value: str, text: str) -> Any:
    """A number, true or false, numbers separated by commas, or a word for the problem."""
    value = value.strip()
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return words[value.lower()]
    try:
        parsed = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        if text.startswith("problem."):
            return value
        raise ValueError(
            f"--set {text}: {value!r} is not a number, a list of numbers, true or false."
        ) from None
    if isinstance(parsed, float) and parsed.is_integer() and "e" in value.lower():
        return int(parsed)  # 1e5 stands for an integer wherever one is needed
    return list(parsed) if isinstance(parsed, tuple) else parsed
