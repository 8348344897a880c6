"""What there is to run, in an order in which something useful comes early."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from natmix.experiments import presets
from natmix.experiments.problems import PAPER
from natmix.experiments.runs import Limits
from natmix.experiments.runs.config import parse_seconds
from natmix.experiments.tables.format import count
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
class Job:
    """One algorithm on one problem.

    Attributes:
        codename: in capitals.
        problem: its name.
        max_seconds: per seed; None is the paper's own limit.
        max_run_seconds: per seed, without compilation.
        together: whether its seeds run together; None for whatever is faster.
    """

    codename: str
    problem: str
    max_seconds: float | None = None
    max_run_seconds: float | None = None
    together: bool | None = None

    @property
    def limits(self) -> Limits:
        """Of a seed, to be completed by the paper's."""
        return Limits(max_seconds=self.max_seconds, max_run_seconds=self.max_run_seconds)

    @property
    def name(self) -> str:
        """Of the run directory."""
        return f"{self.problem}-{self.codename.lower()}"

    def folder(self, out: Path) -> Path:
        """The run directory."""
        return out / self.name


def plan(
    candidates: Iterable[str] = MAIN,
    problems: Iterable[str] = PAPER,
    max_seconds: Mapping[str, float] | None = None,
    max_run_seconds: Mapping[str, float] | None = None,
    together: bool | None = None,
) -> list[Job]:
    """SAMTRON first, quick problems first, without what the paper has no hyperparameters for.

    Args:
        candidates: codenames.
        problems: names.
        max_seconds: per seed, by problem; under "" for all others.
        max_run_seconds: the same without compilation.
        together: whether the seeds of a job run together; None for whatever is faster.
    """
    wanted, where = set(candidates), set(problems)
    limits, running = max_seconds or {}, max_run_seconds or {}
    order = dict.fromkeys((*MAIN, *ALL))
    return [
        Job(codename, problem, _of(limits, problem), _of(running, problem), together)
        for codename in order
        if codename in wanted
        for problem in _QUICK_FIRST
        if problem in where and available(codename, problem)
    ]


def at_most(jobs: Sequence[Job], seeds: int) -> str:
    """In a sentence, how long it takes if every seed uses all of its time."""
    times = [_shortest(job) for job in jobs]
    each = f"{min(times):g} s" if len(set(times)) == 1 else f"{min(times):g} to {max(times):g} s"
    return (
        f"{count(len(jobs), 'cell')} of the table, {count(seeds, 'seed')} each, a limit of {each} per seed: "
        f"at most {_hours(seeds * sum(times))} one after another, and less for what has finished or runs "
        "together."
    )


def _shortest(job: Job) -> float:
    """The time limit of a seed in seconds."""
    whole = job.max_seconds or presets.paper(job.codename, job.problem).max_seconds
    return whole if job.max_run_seconds is None else min(whole, job.max_run_seconds)


def _hours(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def _of(times: Mapping[str, float], problem: str) -> float | None:
    return times.get(problem, times.get(""))


def available(codename: str, problem: str) -> bool:
    """Whether the paper has a number there: ZAMTRUX has none on stm300."""
    return problem in presets.problems(codename)


def parse_candidates(text: str) -> tuple[str, ...]:
    """Of "samtron,zamtrux" or "all", in the order of the paper."""
    if text.strip().lower() == "all":
        return ALL
    names = {_codename(word) for word in _words(text, "candidate")}
    return tuple(name for name in dict.fromkeys((*MAIN, *ALL)) if name in names)


def parse_problems(text: str) -> tuple[str, ...]:
    """Of "stm20,wine", in the order of the paper."""
    names = {_problem(word) for word in _words(text, "problem")}
    return tuple(name for name in (*PAPER, *HELD_OUT) if name in names)


def parse_times(texts: Sequence[str]) -> dict[str, float]:
    """Of "10m", or "stm300=20m,wine=5m", or both; what holds for all others is under ""."""
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
