"""The search space of each codename on each problem, from the sections of a study file."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from natmix.experiments.studies.definition import CellKey, CellSpace
from natmix.experiments.studies.domains import Choice, Domain, IntRange, is_setting, read_domain
from natmix.experiments.studies.toml_lines import KeyPath
from natmix.experiments.studies.trial_runner import COMPONENTS, WHOLE_ALGORITHM, Setting
from natmix.modules.codenames import MODULES, parse
from natmix.text.suggestions import hint

TOGETHER = "together"


class SpaceError(ValueError):
    """An entry of a space is wrong.

    Attributes:
        path: of the entry.
        what: is wrong, without a subject.
    """

    def __init__(self, path: KeyPath, what: str) -> None:
        super().__init__(what)
        self.path, self.what = path, what


class SpaceEntry(NamedTuple):
    """A section of a study file.

    Attributes:
        path: of the section.
        problems: to which it applies.
        codenames: likewise.
        several: whether it names several codenames; settings that only some of them have are ignored for the
            others.
        content: settings by module, and ``together``.
    """

    path: KeyPath
    problems: tuple[str, ...]
    codenames: tuple[str, ...]
    several: bool
    content: Mapping[str, Any]


def read_spaces(cells: Sequence[CellKey], entries: Sequence[SpaceEntry]) -> dict[CellKey, CellSpace]:
    """The space of each cell: later sections replace what earlier ones say of a setting.

    Raises:
        SpaceError: an entry is wrong.
    """
    read = [_section(entry) for entry in entries]
    found = {}
    for cell in cells:
        fixed: dict[str, Setting] = {}
        free: dict[str, Domain] = {}
        groups: tuple[tuple[dict[str, Setting], ...], ...] = ()
        for entry, (settings, together) in zip(entries, read, strict=True):
            if cell.problem not in entry.problems or cell.codename not in entry.codenames:
                continue
            for name, value in settings.items():
                if has_setting(cell.codename, name):
                    fixed.pop(name, None)
                    free.pop(name, None)
                    if isinstance(value, tuple):
                        free[name] = value
                    else:
                        fixed[name] = value
            if together:
                groups = (*groups, _kept(cell.codename, together))
        joint = {name for group in groups for choice in group for name in choice}
        found[cell] = CellSpace(
            {name: value for name, value in fixed.items() if name not in joint},
            {name: domain for name, domain in free.items() if name not in joint},
            groups,
        )
    return found


def check_grid(spaces: Mapping[CellKey, CellSpace]) -> None:
    """Raise unless all settings are lists or have points.

    Raises:
        SpaceError: one is a range.
    """
    for cell, space in spaces.items():
        for name, domain in space.free.items():
            if not isinstance(domain, Choice) and domain.points is None:
                raise SpaceError(
                    ("search", "sampler"),
                    f"is a grid, and {name} (of {cell.codename} on {cell.problem}) is a range: give a list "
                    "of values, or the range's points",
                )


def _section(entry: SpaceEntry) -> tuple[dict[str, Domain | Setting], tuple[dict[str, Setting], ...]]:
    """Settings of a section by their names, and its joint choices."""
    settings: dict[str, Domain | Setting] = {}
    together: tuple[dict[str, Setting], ...] = ()
    for key, value in entry.content.items():
        if key == TOGETHER:
            together = _together(value, entry)
            continue
        for name, path, given in _named(key, value, entry.path):
            try:
                domain = read_domain(given)
            except ValueError as error:
                raise SpaceError(path, str(error)) from error
            _check(entry, path, name, domain)
            settings[name] = domain
    return settings, together


def _named(key: str, value: Any, at: KeyPath) -> list[tuple[str, KeyPath, Any]]:
    """Name, path and value of the settings of a module, which is a table, or of one setting."""
    if key in WHOLE_ALGORITHM:
        return [(key, (*at, key), value)]
    if "." in key:  # a key in quotes
        return [(key, (*at, key), value)]
    known = (*MODULES, "start", "problem", *WHOLE_ALGORITHM, TOGETHER)
    if key not in known:
        raise SpaceError((*at, key), f"is no module. {hint(key, known)}")
    if not isinstance(value, Mapping):
        raise SpaceError((*at, key), f"must name a hyperparameter, such as {key}.NAME = ...")
    return [(f"{key}.{name}", (*at, key, name), given) for name, given in value.items()]


def _together(value: Any, entry: SpaceEntry) -> tuple[dict[str, Setting], ...]:
    at = (*entry.path, TOGETHER)
    if not isinstance(value, list) or not value or not all(isinstance(choice, Mapping) for choice in value):
        raise SpaceError(at, "must be a list of tables, each with the same settings")
    choices = []
    for choice in value:
        settings: dict[str, Setting] = {}
        for key, inner in choice.items():
            for name, path, given in _named(key, inner, at):
                if not is_setting(given):
                    raise SpaceError(path, f"must have one value in each table, got {given!r}")
                _check(entry, path, name, given)
                settings[name] = given
        choices.append(settings)
    if any(choice.keys() != choices[0].keys() for choice in choices):
        raise SpaceError(at, "must have the same settings in each table")
    return tuple(choices)


def _kept(codename: str, choices: Sequence[dict[str, Setting]]) -> tuple[dict[str, Setting], ...]:
    """Those settings of joint choices that a codename has; each choice that is left once."""
    kept = [
        {name: value for name, value in choice.items() if has_setting(codename, name)} for choice in choices
    ]
    return tuple(choice for i, choice in enumerate(kept) if choice not in kept[:i])


def has_setting(codename: str, name: str) -> bool:
    """Whether an algorithm has a setting."""
    module, _, hyperparameter = name.partition(".")
    if module not in MODULES:
        return True
    return any(known == hyperparameter for known, _, _ in parse(codename)[module].hyperparameters())


def _check(entry: SpaceEntry, path: KeyPath, name: str, domain: Domain | Setting) -> None:
    """That the setting exists for the section's codenames, and that its values are in range."""
    module, _, hyperparameter = name.partition(".")
    if name in WHOLE_ALGORITHM or module == "problem":
        return
    values = domain.ends() if isinstance(domain, tuple) else (domain,)
    if module == "start":
        _check_components(path, name, values, domain)
        return
    if module not in MODULES:
        raise SpaceError(path, f"is no setting. {hint(module, (*MODULES, 'start', 'problem'))}")
    options = {parse(codename)[module] for codename in entry.codenames}
    having = [o for o in options if hyperparameter in [known for known, _, _ in o.hyperparameters()]]
    if not having or (len(having) < len(options) and not entry.several):
        names = [known for option in options for known, _, _ in option.hyperparameters()]
        letters = ", ".join(sorted(f"{option.letter} ({option.title})" for option in options))
        raise SpaceError(
            path, f"is no hyperparameter of {letters}. {hint(hyperparameter, dict.fromkeys(names))}"
        )
    for option in having:
        for value in values:
            try:
                option.check_value(hyperparameter, value)
            except ValueError as error:
                raise SpaceError(path, f"cannot be {value!r}: {error}") from error


def _check_components(path: KeyPath, name: str, values: Sequence[Any], domain: Domain | Setting) -> None:
    if name != COMPONENTS:
        raise SpaceError(
            path, f"is no setting; of the start there is {COMPONENTS}, the number of initial components"
        )
    whole = isinstance(domain, IntRange) or all(type(value) is int for value in values)
    if not whole or min(values) < 1:
        raise SpaceError(path, "must be whole numbers of at least 1")
