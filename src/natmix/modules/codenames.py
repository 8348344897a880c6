"""Seven letters name an algorithm: one option of each module, in any order."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from natmix.modules import (
    component_adaptation,
    component_stepsizes,
    component_updaters,
    ng_estimators,
    sample_selectors,
    weight_stepsizes,
    weight_updaters,
)
from natmix.modules.hyperparameters import Option, _check
from natmix.registry import registry_of
from natmix.text.suggestions import closest, hint

if TYPE_CHECKING:
    from natmix.gmmvi import GMMVI

MODULES: dict[str, tuple[type[Option], ...]] = {
    "ng_estimator": ng_estimators.OPTIONS,
    "component_adaptation": component_adaptation.OPTIONS,
    "sample_selector": sample_selectors.OPTIONS,
    "component_updater": component_updaters.OPTIONS,
    "component_stepsize": component_stepsizes.OPTIONS,
    "weight_updater": weight_updaters.OPTIONS,
    "weight_stepsize": weight_stepsizes.OPTIONS,
}
"""The modules in the order of the letters of SAMTRON, each with its options, the default first."""

LETTERS: dict[str, tuple[str, type[Option]]] = registry_of(
    "option with the letter",
    ((module, option) for module, options in MODULES.items() for option in options),
    lambda entry: entry[1].letter,
)
"""The module and the option of each letter."""

PAIR_DEFAULTS: dict[tuple[str, str], dict[str, float]] = {("U", "N"): {"max_stepsize": 1.0}}
"""Defaults of the second option's hyperparameters in combination with the first.

The direct weight update (U) multiplies an error of the log weights by 1 - b: a stepsize b above 1 overshoots,
one above 2 diverges. The usual limit of the adaptive stepsize (N) is a bound on the KL, meant for O.
"""


def parse(codename: str) -> dict[str, type[Option]]:
    """The option of each module that the letters name."""
    if not isinstance(codename, str):
        raise ValueError(f"A codename is a string of seven letters such as 'samtron', got {codename!r}.")
    chosen: dict[str, type[Option]] = {}
    n = len(codename)
    which = repr(codename)
    if n != len(MODULES):
        which = f"A codename has seven letters, one of each module, and {codename!r} has {n}"
    for letter in codename.upper():
        if letter not in LETTERS:
            raise ValueError(
                f"{which}: {letter!r} is not the letter of an option; the letters are {_all_choices()}."
                f"{_meant(codename)}"
            )
        module, option = LETTERS[letter]
        if module in chosen:
            raise ValueError(
                f"{which}: {chosen[module].letter!r} and {letter!r} both choose the {_words(module)}; "
                f"take one of {_choices(module)}.{_meant(codename)}"
            )
        chosen[module] = option
    missing = [m for m in MODULES if m not in chosen]
    if missing:
        lacks = "; ".join(f"the {_words(m)}: {_choices(m)}" for m in missing)
        raise ValueError(f"{which}: it has no letter for {lacks}.{_meant(codename)}")
    return {m: chosen[m] for m in MODULES}


def fields_of(codename: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a GMMVI from its codename and hyperparameters by module."""
    options = parse(codename)
    plain = {"temperature", "zero_penalty"}
    unknown = [name for name in overrides if name not in MODULES and name not in plain]
    if unknown:
        raise ValueError(
            f"There is no module {unknown[0]!r}. {hint(unknown[0], [*MODULES, *sorted(plain)])} "
            "Hyperparameters are given by module, such as component_stepsize={'stepsize': 0.1}."
        )
    parts: dict[str, Any] = {
        m: _option(m, option, overrides.get(m), _beside(options, option)) for m, option in options.items()
    }
    return parts | {k: v for k, v in overrides.items() if k in plain}


def codename(algorithm: "GMMVI") -> str:
    """Seven upper-case letters."""
    return "".join(getattr(algorithm, m).letter for m in MODULES)


def settings(algorithm: "GMMVI") -> dict[str, Any]:
    """All choices and hyperparameters as plain Python."""
    out: dict[str, Any] = {"codename": codename(algorithm)}
    for module in MODULES:
        option = getattr(algorithm, module)
        out[module] = {"option": option.letter, **option.settings()}
    out["temperature"] = float(algorithm.temperature)
    out["zero_penalty"] = float(algorithm.zero_penalty)
    return out


def check_modules(algorithm: "GMMVI") -> None:
    """Check that every field holds an option of its own module, and that numbers are in range."""
    for module in MODULES:
        option = getattr(algorithm, module)
        if not isinstance(option, MODULES[module]) and not _is_own(module, option):
            raise ValueError(
                f"GMMVI: {module} must be one of {_choices(module)}, got {type(option).__name__}."
            )
    for field in dataclasses.fields(algorithm):
        if "doc" in field.metadata:
            _check("GMMVI", field, getattr(algorithm, field.name))


def _is_own(module: str, option: Any) -> bool:
    """A user's own subclass of the module's abstract base."""
    base = MODULES[module][0].__mro__[1]
    return isinstance(option, base)


def _beside(options: Mapping[str, type[Option]], option: type[Option]) -> dict[str, float]:
    """Those defaults of the option that depend on the other options."""
    letters = [(other.letter, option.letter) for other in options.values()]
    return {name: value for pair in letters for name, value in PAIR_DEFAULTS.get(pair, {}).items()}


def _option(module: str, option: type[Option], override: Any, defaults: Mapping[str, float]) -> Option:
    if override is None:
        return option(**defaults)
    if isinstance(override, Option):
        if override.letter != option.letter:
            raise ValueError(
                f"The codename chooses {option.letter!r} as {_words(module)}, "
                f"the override {override.letter!r}."
            )
        return override
    if not isinstance(override, Mapping):
        raise ValueError(f"{module} takes a dictionary of hyperparameters, got {override!r}.")
    names = [name for name, _, _ in option.hyperparameters()]
    unknown = [name for name in override if name not in names]
    if unknown:
        raise ValueError(
            f"{option.title} ({option.letter}) has no hyperparameter {unknown[0]!r}. "
            f"{hint(unknown[0], names)}"
        )
    return option(**{**defaults, **override})


def _meant(codename: str) -> str:
    """The codename most like what was given, as a sentence; empty if none is."""
    letters = [[option.letter for option in options] for options in MODULES.values()]
    close = closest(codename, map("".join, itertools.product(*letters)))
    return "" if close is None else f" Did you mean {close}?"


def _words(module: str) -> str:
    return module.replace("ng_", "").replace("_", " ")


def _choices(module: str) -> str:
    return ", ".join(f"{o.letter} ({o.title})" for o in MODULES[module])


def _all_choices() -> str:
    return "; ".join(f"{_words(m)}: {'/'.join(o.letter for o in options)}" for m, options in MODULES.items())


def adds_components(codename: str) -> bool:
    """Whether the number of components may grow."""
    option = parse(codename)["component_adaptation"]
    return cast(type[component_adaptation.AbstractComponentAdaptation], option).adds_components
