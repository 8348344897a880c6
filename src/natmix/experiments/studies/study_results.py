"""Results of a study: rows, the best settings, the best of each option."""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natmix.experiments.studies.definition import CellKey, Study
from natmix.experiments.studies.progress import StudyProgress, open_progress
from natmix.experiments.studies.settings_source import SettingResult
from natmix.experiments.studies.study_folder import StudyFolder, TrialOutcome, joint_study
from natmix.experiments.studies.trial_runner import COMPONENTS, Setting, parted
from natmix.files.durable import write_text
from natmix.modules.codenames import MODULES, parse


class TrialResult(NamedTuple):
    """How a trial ended, and where it is.

    Attributes:
        folder: of its study.
        seed: its own.
        outcome: how it ended.
    """

    folder: StudyFolder
    seed: int
    outcome: TrialOutcome


class CellResult(NamedTuple):
    """What a codename came to on a problem.

    Attributes:
        cell: which.
        total: settings to try.
        results: of the settings that are done.
        trials: of each of these.
        running: trials without an outcome that are planned.
        repeated: trials that were left out, for the same setting and seed is in an earlier folder.
    """

    cell: CellKey
    total: int
    results: tuple[SettingResult, ...]
    trials: tuple[tuple[TrialResult, ...], ...]
    running: int
    repeated: int

    def count(self, state: str) -> int:
        """Settings that ended so."""
        return sum(result.state == state for result in self.results)


class OptionBest(NamedTuple):
    """The best value of all candidates with an option, on a problem.

    Attributes:
        problem: the problem.
        module: the module of the option.
        letter: of the option.
        title: of the option.
        value: the best; None if no setting is complete.
        error: its standard error, from the samples of its last evaluation or from the seeds.
        codename: of the best.
        others: the best value of each candidate with the option.
    """

    problem: str
    module: str
    letter: str
    title: str
    value: float | None
    error: float
    codename: str
    others: tuple[float, ...]


class StudyResults:
    """What a study has found so far.

    Attributes:
        study: the study; of several folders, with all their problems, codenames and seeds.
        folders: in which it is.
        cells: results of each codename on each problem.
    """

    def __init__(self, *parts: StudyProgress) -> None:
        """From a study's folder, or from several that hold parts of one study.

        Raises:
            ValueError: they are of different studies.
        """
        self.study: Study = joint_study([(part.folder, part.study) for part in parts])
        self.folders = tuple(part.folder for part in parts)
        self.cells = tuple(_merged(key, parts) for key in self.study.cells)

    def best(self, problem: str, codename: str | None = None) -> tuple[CellKey, SettingResult] | None:
        """The best complete setting on a problem, of all candidates or of one."""
        found = [
            (cell.cell, result)
            for cell in self.cells
            if cell.cell.problem == problem and codename in (None, cell.cell.codename)
            for result in cell.results
            if result.value is not None
        ]
        return min(found, key=lambda each: self.sign * (each[1].value or 0.0)) if found else None

    def trials(self, cell: CellKey, result: SettingResult) -> tuple[TrialResult, ...]:
        """The trials of a setting."""
        found = next(each for each in self.cells if each.cell == cell)
        return found.trials[[each.position for each in found.results].index(result.position)]

    def trial_names(self, cell: CellKey, result: SettingResult) -> str:
        """Their numbers, with their folders if there are several."""
        several = len(self.folders) > 1
        found = self.trials(cell, result)
        return ", ".join(f"{t.folder.path}:" * several + str(t.outcome.number) for t in found)

    @property
    def sign(self) -> int:
        """What to multiply values by so that small is good."""
        return -1 if self.study.objective.maximize else 1

    def options(self) -> list[OptionBest]:
        """The best of each option of the modules in which the candidates differ, problem by problem."""
        found = []
        for problem in self.study.problems:
            names = [cell.codename for cell in self.study.cells if cell.problem == problem]
            for module in MODULES:
                chosen = {name: parse(name)[module] for name in names}
                letters = [o for o in MODULES[module] if o in chosen.values()]
                if len(letters) > 1:
                    for option in letters:
                        having = [name for name in names if chosen[name] is option]
                        found.append(self._option(problem, module, option, having))
        return found

    def _option(self, problem: str, module: str, option: Any, names: Sequence[str]) -> OptionBest:
        bests = [best for name in names if (best := self.best(problem, name)) is not None]
        bests.sort(key=lambda each: self.sign * (each[1].value or 0.0))
        values = tuple(result.value for _, result in bests if result.value is not None)
        if not values:
            return OptionBest(problem, module, option.letter, option.title, None, math.nan, "", ())
        cell, result = bests[0]
        error = standard_error(result)
        return OptionBest(
            problem, module, option.letter, option.title, values[0], error, cell.codename, values
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per trial."""
        rows = []
        for cell in self.cells:
            for result, trials in zip(cell.results, cell.trials, strict=True):
                for folder, seed, outcome in trials:
                    rows.append(
                        {
                            **({"folder": str(folder.path)} if len(self.folders) > 1 else {}),
                            "trial": outcome.number,
                            "problem": cell.cell.problem,
                            "codename": cell.cell.codename,
                            "setting": result.position,
                            "seed": seed,
                            "state": outcome.state,
                            "value": outcome.value,
                            "neg_elbo": outcome.neg_elbo,
                            "neg_elbo_se": outcome.neg_elbo_se,
                            "iterations": outcome.iterations,
                            "evaluations": outcome.evaluations,
                            "seconds": round(outcome.seconds, 3),
                            "compile_seconds": round(outcome.compile_seconds, 3),
                            "components": outcome.components,
                            "attempts": outcome.attempts,
                            "reason": outcome.reason,
                            **result.settings,
                        }
                    )
        return rows

    def write_csv(self, path: Path) -> None:
        """Write the rows; a setting that a candidate does not have is an empty cell."""
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row)) or ["trial"]
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text.getvalue())

    def failures(self) -> dict[str, int]:
        """How many trials failed, by reason."""
        found: dict[str, int] = {}
        for cell in self.cells:
            for outcome in (o for result in cell.results for o in result.outcomes if o.state == "failed"):
                found[outcome.reason] = found.get(outcome.reason, 0) + 1
        return dict(sorted(found.items(), key=lambda each: -each[1]))


def load_results(*paths: str | Path) -> StudyResults:
    """What a study has found so far, in one folder or in several of several sittings and machines."""
    return StudyResults(*(open_progress(path) for path in paths))


def _merged(key: CellKey, parts: Sequence[StudyProgress]) -> CellResult:
    """A cell's results of all folders that have it."""
    cells = [(part, cell) for part in parts for cell in part.cells if cell.cell == key]
    seeds = list(dict.fromkeys(seed for part, _ in cells for seed in part.study.seeds))
    settings: dict[tuple[int, str], dict[str, Setting]] = {}
    trials: dict[tuple[int, str], dict[int, TrialResult]] = {}
    repeated = 0
    for part, cell in cells:
        for position, chosen in enumerate(cell.settings):
            # Samplers that learn choose other settings for a position in each folder.
            which = position, json.dumps(chosen, sort_keys=True)
            settings.setdefault(which, chosen)
            there = trials.setdefault(which, {})
            for at, seed in enumerate(part.study.seeds):
                outcome = cell.outcomes.get((position, at))
                if outcome is not None:
                    repeated += seed in there
                    there.setdefault(seed, TrialResult(part.folder, seed, outcome))
    done: set[int] = set()
    found, results = [], []
    for which in sorted(settings, key=lambda each: each[0]):
        if len(trials[which]) == len(seeds):
            position = which[0] if which[0] not in done else max(len(settings), *done) + 1
            done.add(position)
            found.append(tuple(trials[which][seed] for seed in seeds))
            outcomes = [trial.outcome for trial in found[-1]]
            results.append(SettingResult(position, dict(settings[which]), outcomes))
    ended = sum(map(len, trials.values()))
    total = max(len(settings), *(cell.total for _, cell in cells))
    running = len(settings) * len(seeds) - ended
    return CellResult(key, total, tuple(results), tuple(found), running, repeated)


def standard_error(result: SettingResult) -> float:
    """Of a setting's value: from the spread of its seeds, or from the samples of its only one."""
    values = [outcome.value for outcome in result.outcomes if outcome.value is not None]
    if len(values) > 1:
        return float(np.std(values, ddof=1) / math.sqrt(len(values)))
    own = result.outcomes[0].neg_elbo_se if result.outcomes else None
    return math.nan if own is None else own


def as_command(study: Study, cell: CellKey, result: SettingResult) -> str:
    """The ``natmix run`` that repeats a setting on a test problem."""
    parts = [f"natmix run {cell.problem} --algorithm {cell.codename.lower()}"]
    if study.preset != "fit":
        parts.append(f"--preset {study.preset}")
    parts += [
        f"--components {value}" if name == COMPONENTS else f"--set {name}={_word(value)}"
        for name, value in result.settings.items()
    ]
    parts += [f"--set problem.{name}={value}" for name, value in study.problems[cell.problem].options.items()]
    return " \\\n    ".join(parts)


def as_arguments(cell: CellKey, result: SettingResult) -> dict[str, Any]:
    """The arguments of `natmix.fit` that have a setting."""
    settings = parted(result.settings)
    arguments: dict[str, Any] = {"algorithm": cell.codename.lower()}
    if settings.components is not None:
        arguments["init_components"] = settings.components
    return {**arguments, **settings.overrides}


def _word(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
