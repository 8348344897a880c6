"""Study files: TOML that is checked entry by entry; docs/studies.md has the schema."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from natmix.engine.limits import Limits, is_number
from natmix.experiments.problems.catalogue import check_options
from natmix.experiments.runs.config import DTYPES, PRESETS, parse_seeds
from natmix.experiments.studies.codename_patterns import matching_any
from natmix.experiments.studies.definition import (
    PRUNERS,
    SAMPLERS,
    STORAGES,
    CellKey,
    Objective,
    PruningRules,
    SearchRules,
    Study,
    StudyChanges,
    StudyProblem,
    StudySource,
)
from natmix.experiments.studies.model_problem import ModelSource
from natmix.experiments.studies.spaces import SpaceEntry, SpaceError, check_grid, read_spaces
from natmix.experiments.studies.toml_lines import KeyPath, line_of, parse_toml
from natmix.gaussians import FAMILIES
from natmix.text.suggestions import hint

T = TypeVar("T")

_BUDGET = {
    "iterations": "max_iterations",
    "evaluations": "max_evaluations",
    "seconds": "max_seconds",
    "run_seconds": "max_run_seconds",
}
_KEYS = (
    "name",
    "title",
    "problems",
    "problem",
    "codenames",
    "exclude",
    "seeds",
    "preset",
    "covariance",
    "dtype",
    "budget",
    "search",
    "pruner",
    "objective",
    "storage",
    "run",
    "space",
)
_PROBLEM_KEYS = ("name", "model", "options", "budget", "dim", "init_mean", "init_scale", "arguments")


def read_study(path: str | Path, changes: StudyChanges | None = None) -> Study:
    """The study that a file describes.

    Args:
        path: of the file.
        changes: of what it says.

    Raises:
        ValueError: an entry is wrong; the message has its line and key.
        FileNotFoundError: there is no file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(2, "there is no such study file", str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no TOML: it is not text in UTF-8.") from error
    return study_from(StudySource(str(path), str(path.parent.resolve()), text, changes or StudyChanges()))


def study_from(source: StudySource) -> Study:
    """The study that a file's text describes."""
    content, lines = parse_toml(source.text, source.path)
    return _Reader(source, content, lines).study()


class _Reader:
    """Reads one file."""

    def __init__(self, source: StudySource, content: dict[str, Any], lines: dict[KeyPath, int]) -> None:
        self._source, self._content, self._lines = source, content, lines

    def study(self) -> Study:
        content, changes = self._content, self._source.changes
        self._known(content, (), _KEYS)
        if not (is_number(changes.scale) and 0 < changes.scale < math.inf):
            raise ValueError(f"--scale must be a positive number, got {changes.scale!r}.")
        problems = self._problems()
        codenames = self._codenames(("codenames",), content.get("codenames"))
        search = self._search()
        excluded = self._excluded(problems, codenames)
        all_cells = [
            CellKey(problem, name)
            for problem in problems
            for name in codenames
            if (problem, name) not in excluded
        ]
        try:
            spaces = read_spaces(all_cells, self._space_entries(problems, codenames))
            if search.sampler == "grid":
                check_grid(spaces)
        except SpaceError as error:
            self._fail(error.path, error.what)
        kept = self._kept(problems, codenames)
        spaces = {cell: space for cell, space in spaces.items() if cell in kept}
        if not spaces:
            raise ValueError(f"{self._source.path}: no codename is left on any problem.")
        if changes.trials is not None:
            search = dataclasses.replace(search, trials=changes.trials)
        storage = changes.storage or self._text(("storage",), "journal")
        if storage not in STORAGES and "://" not in storage:
            self._fail(("storage",), f"must be {', '.join(STORAGES)} or a URL of a database, got {storage!r}")
        return Study(
            name=self._text(("name",), Path(self._source.path).stem),
            title=self._text(("title",), ""),
            problems={
                name: problem for name, problem in problems.items() if any(c.problem == name for c in spaces)
            },
            codenames=tuple(name for name in codenames if any(c.codename == name for c in spaces)),
            spaces=spaces,
            seeds=changes.seeds or self._seeds(),
            preset=self._one_of(("preset",), PRESETS, "fit"),
            covariance=self._one_of(("covariance",), tuple(FAMILIES), "full"),
            dtype=self._one_of(("dtype",), DTYPES, "float32"),
            search=search,
            pruning=self._pruning(),
            objective=self._objective(),
            storage=storage,
            retries=self._run("retries", 2, least=0),
            checkpoint_seconds=self._run("checkpoint_seconds", 60.0, least=0.0),
            scale=float(changes.scale),
            source=self._source,
        )

    # Problems -----------------------------------------------------------------------------------

    def _problems(self) -> dict[str, StudyProblem]:
        found: dict[str, StudyProblem] = {}
        plain = self._content.get("problems", [])
        entries = self._content.get("problem", [])
        if not isinstance(plain, list) or not all(isinstance(name, str) for name in plain):
            self._fail(("problems",), f'must be a list of names, such as ["gmm20"], got {plain!r}')
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self._fail(("problem",), "must be tables, each written [[problem]]")
        if not plain and not entries:
            self._fail((), 'there is no problem; write problems = ["gmm20"] or [[problem]] tables')
        for name in plain:
            self._add(found, ("problems",), self._problem({"name": name}, ("problems",)))
        for i, entry in enumerate(entries):
            self._add(found, ("problem", i, "name"), self._problem(entry, ("problem", i)))
        return found

    def _add(self, found: dict[str, StudyProblem], at: KeyPath, problem: StudyProblem) -> None:
        if problem.name in found:
            self._fail(at, f"there are two problems {problem.name!r}; give one another name")
        found[problem.name] = problem

    def _problem(self, entry: dict[str, Any], at: KeyPath) -> StudyProblem:
        self._known(entry, at, _PROBLEM_KEYS)
        options = entry.get("options", {})
        if not isinstance(options, dict):
            self._fail((*at, "options"), "must be a table of options")
        limits = self._limits(entry.get("budget", {}), at)
        if "model" in entry:
            source = self._model(entry, at)
            name = entry.get("name", source.function)
            if not isinstance(name, str) or not name.isidentifier():
                self._fail((*at, "name"), f"must be a name of letters, digits and _, got {name!r}")
            return StudyProblem(name, options, limits, source)
        for key in ("dim", "init_mean", "init_scale", "arguments"):
            if key in entry:
                self._fail((*at, key), "goes with a model of your own, model = 'module:function'")
        name = entry.get("name")
        try:
            check_options(name, options)
        except ValueError as error:
            self._fail((*at, "options") if "options" in str(error) else at, str(error))
        assert isinstance(name, str)
        return StudyProblem(name, options, limits)

    def _model(self, entry: dict[str, Any], at: KeyPath) -> ModelSource:
        path, dim, arguments = entry["model"], entry.get("dim"), entry.get("arguments")
        if not isinstance(path, str) or not all(path.rpartition(":")):
            self._fail((*at, "model"), f"must be 'module:function' or 'file.py:function', got {path!r}")
        if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or dim < 1):
            self._fail((*at, "dim"), f"must be a whole number of at least 1, got {dim!r}")
        if arguments is not None and not isinstance(arguments, dict):
            self._fail((*at, "arguments"), "must be a table of arguments of the function")
        numbers = {key: self._numbers(entry.get(key), (*at, key)) for key in ("init_mean", "init_scale")}
        return ModelSource(path, self._source.folder, dim, arguments=arguments, **numbers)

    def _numbers(self, value: Any, at: KeyPath) -> float | tuple[float, ...] | None:
        if value is None or is_number(value):
            return value
        if not isinstance(value, list) or not value or not all(is_number(number) for number in value):
            self._fail(at, f"must be a number or one per dimension, got {value!r}")
        return tuple(float(number) for number in value)

    def _limits(self, own: Any, at: KeyPath) -> Limits:
        """The study's budget with a problem's own entries, scaled."""
        shared = self._table("budget", tuple(_BUDGET))
        if not isinstance(own, dict):
            self._fail((*at, "budget"), f"must be a table of {', '.join(_BUDGET)}")
        self._known(own, (*at, "budget"), tuple(_BUDGET))
        numbers: dict[str, Any] = {}
        for key, name in _BUDGET.items():
            where: KeyPath = (*at, "budget", key) if key in own else ("budget", key)
            value = own.get(key, shared.get(key))
            if value is None:
                continue
            whole = key in ("iterations", "evaluations")
            if not is_number(value) or not 0 < value < math.inf or (whole and int(value) != value):
                self._fail(where, f"must be a positive {'whole ' if whole else ''}number, got {value!r}")
            scaled = value * self._source.changes.scale
            numbers[name] = max(1, round(scaled)) if whole else scaled
        if not numbers:
            self._fail(("budget",), f"a study needs a budget for each trial: {', '.join(_BUDGET)}")
        return Limits(**numbers)

    # Candidates and spaces ----------------------------------------------------------------------

    def _codenames(self, at: KeyPath, value: Any) -> tuple[str, ...]:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            self._fail(
                at, f'must be codenames or patterns, such as ["SAMTRON", "S?P[TIY][RFD]UX"], got {value!r}'
            )
        try:
            return matching_any(texts)
        except ValueError as error:
            self._fail(at, str(error))

    def _excluded(self, problems: Mapping[str, Any], codenames: Sequence[str]) -> set[tuple[str, str]]:
        entries = self._content.get("exclude", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self._fail(("exclude",), "must be tables, each written [[exclude]]")
        out = set()
        for i, entry in enumerate(entries):
            self._known(entry, ("exclude", i), ("problems", "codenames"))
            where, who = self._part(entry, ("exclude", i), problems, codenames)
            out |= {(problem, name) for problem in where for name in who}
        return out

    def _part(
        self, entry: dict[str, Any], at: KeyPath, problems: Mapping[str, Any], codenames: Sequence[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The problems and codenames that a section is about."""
        names = entry.get("problems", list(problems))
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list):
            self._fail((*at, "problems"), "must be a list of problems of this study")
        for name in names:
            if name not in problems:
                self._fail((*at, "problems"), f"the study has no problem {name!r}. {hint(name, problems)}")
        if "codenames" not in entry:
            return tuple(names), tuple(codenames)
        wanted = self._codenames((*at, "codenames"), entry["codenames"])
        who = tuple(name for name in wanted if name in codenames)
        if not who:
            self._fail((*at, "codenames"), f"none of the study's candidates is among {entry['codenames']!r}")
        return tuple(names), who

    def _space_entries(self, problems: Mapping[str, Any], codenames: Sequence[str]) -> list[SpaceEntry]:
        entries = self._content.get("space", [])
        if isinstance(entries, dict):
            self._fail(("space",), "must be written [[space]], in double brackets")
        found = []
        for i, entry in enumerate(entries):
            where, who = self._part(entry, ("space", i), problems, codenames)
            settings = {key: value for key, value in entry.items() if key not in ("problems", "codenames")}
            several = len(who) > 1
            found.append(SpaceEntry(("space", i), where, who, several, settings))
        return found

    def _kept(self, problems: Mapping[str, Any], codenames: Sequence[str]) -> set[tuple[str, str]]:
        """What the options of the command leave."""
        changes = self._source.changes
        names = list(changes.problems or problems)
        for name in names:
            if name not in problems:
                raise ValueError(f"The study has no problem {name!r}. {hint(name, problems)}")
        wanted = codenames if changes.codenames is None else matching_any(changes.codenames)
        return {(problem, codename) for problem in names for codename in wanted}

    # Rules --------------------------------------------------------------------------------------

    def _search(self) -> SearchRules:
        table = self._table("search", tuple(f.name for f in dataclasses.fields(SearchRules)))
        sampler = self._one_of(("search", "sampler"), SAMPLERS, "random")
        trials = self._whole(table, ("search", "trials"), None, 1)
        changed = self._source.changes.trials
        if trials is None and changed is None and sampler != "grid" and self._content.get("space"):
            self._fail(("search",), f"says no number of trials, which the sampler {sampler} needs")
        return SearchRules(
            sampler,
            trials,
            self._whole(table, ("search", "batch"), SearchRules.batch, 1),
            self._whole(table, ("search", "seed"), SearchRules.seed, 0),
            self._whole(table, ("search", "startup"), SearchRules.startup, 1),
        )

    def _pruning(self) -> PruningRules:
        table = self._table("pruner", tuple(f.name for f in dataclasses.fields(PruningRules)))
        return PruningRules(
            self._one_of(("pruner", "kind"), PRUNERS, "median" if table else "none"),
            self._whole(table, ("pruner", "rungs"), PruningRules.rungs, 2),
            self._whole(table, ("pruner", "startup"), PruningRules.startup, 1),
            self._whole(table, ("pruner", "factor"), PruningRules.factor, 2),
        )

    def _objective(self) -> Objective:
        table = self._table("objective", ("metric", "direction"))
        metric = table.get("metric", "neg_elbo")
        if not isinstance(metric, str) or not metric:
            self._fail(("objective", "metric"), f"must be the name of a metric, got {metric!r}")
        direction = self._one_of(("objective", "direction"), ("minimize", "maximize"), "minimize")
        return Objective(metric, direction == "maximize")

    def _seeds(self) -> tuple[int, ...]:
        value = self._content.get("seeds", [0])
        try:
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                return tuple(parse_seeds(str(value)))
            if (
                isinstance(value, list)
                and value
                and all(type(seed) is int and 0 <= seed < 2**32 for seed in value)
            ):
                return tuple(dict.fromkeys(value))
        except ValueError as error:
            self._fail(("seeds",), str(error))
        self._fail(("seeds",), f'must be a list such as [0, 1, 2], or "0:10", got {value!r}')

    def _run(self, name: str, default: T, least: float) -> T:
        table = self._table("run", ("retries", "checkpoint_seconds"))
        value = table.get(name, default)
        if not is_number(value) or value < least or (isinstance(default, int) and int(value) != value):
            self._fail(("run", name), f"must be a number of at least {least:g}, got {value!r}")
        return type(default)(value)  # type: ignore[call-arg]

    # Entries ------------------------------------------------------------------------------------

    def _table(self, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
        value = self._content.get(name, {})
        if not isinstance(value, dict):
            self._fail((name,), f"must be a table, written [{name}], of {', '.join(keys)}")
        self._known(value, (name,), keys)
        return value

    def _whole(self, table: dict[str, Any], at: KeyPath, default: Any, least: int) -> Any:
        value = table.get(str(at[-1]), default)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            self._fail(at, f"must be a whole number of at least {least}, got {value!r}")
        return value

    def _text(self, at: KeyPath, default: str) -> str:
        value = self._content.get(str(at[0]), default)
        if not isinstance(value, str):
            self._fail(at, f"must be text in quotes, got {value!r}")
        return value

    def _one_of(self, at: KeyPath, choices: tuple[str, ...], default: str) -> str:
        value: Any = self._content
        for key in at:
            value = value.get(key, default) if isinstance(value, dict) and key in value else default
        if value not in choices:
            self._fail(at, f"must be {', '.join(choices[:-1])} or {choices[-1]}, got {value!r}")
        return str(value)

    def _known(self, table: Mapping[str, Any], at: KeyPath, keys: tuple[str, ...]) -> None:
        for key in table:
            if key not in keys:
                self._fail((*at, key), f"is not known. {hint(key, keys)}")

    def _fail(self, at: KeyPath, what: str) -> NoReturn:
        line = line_of(self._lines, at)
        where = self._source.path if line is None else f"{self._source.path}, line {line}"
        dotted = ".".join(str(part) for part in at if not isinstance(part, int))
        raise ValueError(f"{where}: {dotted + ' ' if dotted else ''}{what.rstrip('.')}.")
