"""The cells of the paper's table to run: algorithms and problems, quick ones first."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from natmix.estimate import counted
from natmix.experiments import presets
from natmix.experiments.problems import PAPER
from natmix.experiments.runs import Limits
from natmix.experiments.runs.config import parse_seconds
from natmix.experiments.tables.paper import ALL, MAIN
from natmix.modules.codenames import MODULES, parse

HELD_OUT = ("breast_cancer_testsplit", "german_credit_testsplit")
"""The problems of the table of accuracies."""

_QUICK_FIRST = (
    "gmm20",
    "gmm100",
    "stm20",
    "german_credit",
    "german_credit_mb",
    "breast_cancer",
    "planar_robot_4",
    "breast_cancer_mb",
    "wine",
    "talos",
    "stm300",
    *HELD_OUT,
)


@dataclasses.dataclass(frozen=True)
class TableCell:
    """A cell of the table: one algorithm on one problem.

    Attributes:
        codename: in capitals.
        problem: its name.
        max_seconds: per seed; None is the paper's own limit.
        max_run_seconds: per seed, without compilation.
        together: whether its seeds run together; None for the faster way.
    """

    codename: str
    problem: str
    max_seconds: float | None = None
    max_run_seconds: float | None = None
    together: bool | None = None

    @property
    def limits(self) -> Limits:
        """The limits of a seed; the paper's are added."""
        return Limits(max_seconds=self.max_seconds, max_run_seconds=self.max_run_seconds)

    @property
    def name(self) -> str:
        """The name of the run directory."""
        return f"{self.problem}-{self.codename.lower()}"

    def folder(self, out: Path) -> Path:
        """The run directory."""
        return out / self.name


def cells_to_run(
    candidates: Iterable[str] = MAIN,
    problems: Iterable[str] = PAPER,
    max_seconds: Mapping[str, float] | None = None,
    max_run_seconds: Mapping[str, float] | None = None,
    together: bool | None = None,
) -> list[TableCell]:
    """The cells that the paper has hyperparameters for, SAMTRON and quick problems first.

    Args:
        candidates: codenames.
        problems: names.
        max_seconds: per seed, by problem; under "" for all others.
        max_run_seconds: the same without compilation.
        together: whether the seeds of a cell run together; None for the faster way.
    """
    wanted, where = set(candidates), set(problems)
    limits, running = max_seconds or {}, max_run_seconds or {}
    order = dict.fromkeys((*MAIN, *ALL))
    return [
        TableCell(codename, problem, _of(limits, problem), _of(running, problem), together)
        for codename in order
        if codename in wanted
        for problem in _QUICK_FIRST
        if problem in where and available(codename, problem)
    ]


def at_most(cells: Sequence[TableCell], seeds: int) -> str:
    """A sentence on the time it takes if every seed uses all of its limit."""
    times = [_shortest(cell) for cell in cells]
    each = f"{min(times):g} s" if len(set(times)) == 1 else f"{min(times):g} to {max(times):g} s"
    return (
        f"{counted(len(cells), 'cell')} of the table, {counted(seeds, 'seed')} each, a limit of {each} per "
        f"seed: at most {_hours(seeds * sum(times))} one after another, less for what has finished or runs "
        "together."
    )


def _shortest(cell: TableCell) -> float:
    """The time limit of a seed in seconds."""
    total = cell.max_seconds or presets.paper(cell.codename, cell.problem).max_seconds
    return total if cell.max_run_seconds is None else min(total, cell.max_run_seconds)


def _hours(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _of(times: Mapping[str, float], problem: str) -> float | None:
    return times.get(problem, times.get(""))


def available(codename: str, problem: str) -> bool:
    """Whether the paper prints a number for the cell: ZAMTRUX has none on stm300."""
    return problem in presets.problems(codename)


def parse_candidates(text: str) -> tuple[str, ...]:
    """Codenames from "samtron,zamtrux" or "all", in the order of the paper."""
    if text.strip().lower() == "all":
        return ALL
    names = {_codename(word) for word in _words(text, "candidate")}
    return tuple(name for name in dict.fromkeys((*MAIN, *ALL)) if name in names)


def parse_problems(text: str) -> tuple[str, ...]:
    """Problems from "stm20,wine", in the order of the paper."""
    names = {_problem(word) for word in _words(text, "problem")}
    return tuple(name for name in (*PAPER, *HELD_OUT) if name in names)


def parse_times(texts: Sequence[str]) -> dict[str, float]:
    """Time limits from "10m", or "stm300=20m,wine=5m", or both; the limit of all others has the name ""."""
    times: dict[str, float] = {}
    for word in (w for text in texts for w in _words(text, "time")):
        problem, equals, time = word.rpartition("=")
        name = _problem(problem.strip()) if equals else ""
        if name in times:
            raise ValueError(f"There are two time limits for {name or 'all problems'}; give one.")
        times[name] = parse_seconds(time)
    return times


def _words(text: str, what: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ValueError(f"There is a {what} missing in {text!r}: separate them by single commas.")
    return words


def _codename(word: str) -> str:
    options = parse(word)
    name = "".join(options[module].letter for module in MODULES)
    if name not in ALL:
        raise ValueError(f"The paper's tables have no {name}, only {', '.join(ALL)}, or all of them: all.")
    return name


def _problem(word: str) -> str:
    if word not in _QUICK_FIRST:
        raise ValueError(
            f"The paper's tables have no problem {word!r}, only {', '.join((*PAPER, *HELD_OUT))}."
        )
    return word
