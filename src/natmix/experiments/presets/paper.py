"""The paper's choices of hyperparameters, by experiment, codename and problem.

``experiment1.csv`` holds those of Experiment 1 (two codenames on three problems, tab:exp1_eval), found by
Bayesian optimization; ``experiment3.csv`` those of Experiment 3 (nine codenames on eleven problems), found by
grid search. SEPYRUX is in both, with other values. One row per codename and problem; an empty cell does not
apply. Rows named ``*_testsplit`` belong to the paper's table of accuracies on held-out data.
"""

import csv
import dataclasses
import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

from natmix.experiments.problems.base import InitialRegion
from natmix.modules.codenames import MODULES, parse
from natmix.modules.hyperparameters import Option

MOST_STORED = 2_000_000
"""Samples kept as candidates for new components, at most.

The paper stored up to 10,000,000 and then dropped every second one. Here a reservoir stays uniform
over the whole history whatever its size, and 2,000,000 are as good at a fifth of the memory.
"""

EXPERIMENTS = {"paper": 3, "paper-exp1": 1}
"""The experiments of the paper whose hyperparameters are known, by the name of their preset."""

MAIN_EXPERIMENT = EXPERIMENTS["paper"]

_LIMITS = ("stepsize", "min_stepsize", "max_stepsize")


@dataclasses.dataclass(frozen=True)
class Preset:
    """What the paper chose for one algorithm on one problem.

    Attributes:
        codename: the algorithm.
        problem: the problem.
        experiment: the number of the paper's experiment.
        overrides: hyperparameters by module, for `natmix.GMMVI.from_codename`.
        components: how many to start with.
        mean: of the starting means, a number or one per dimension.
        mean_scale: their standard deviation about it, likewise.
        variance: of every starting component, likewise.
        max_seconds: the paper's time limit (on 4 to 24 CPU cores).
        max_iterations: the paper's limit of iterations.
    """

    codename: str
    problem: str
    experiment: int
    overrides: Mapping[str, Mapping[str, Any]]
    components: int
    mean: float | tuple[float, ...]
    mean_scale: float | tuple[float, ...]
    variance: float | tuple[float, ...]
    max_seconds: float
    max_iterations: int

    def start(self, dim: int) -> InitialRegion:
        """The initial region of runs in ``dim`` dimensions."""
        return InitialRegion.build(dim, self.mean, self.mean_scale, self.variance)


def paper(codename: str, problem: str, experiment: int = MAIN_EXPERIMENT) -> Preset:
    """The paper's choice for this algorithm (letters in any order and case) on this problem.

    Args:
        codename: the algorithm.
        problem: the problem.
        experiment: 3 (the paper's main experiment) or 1.
    """
    options = parse(codename)
    name = "".join(options[m].letter for m in MODULES)
    rows = published_rows(experiment)
    if (name, problem) not in rows:
        raise ValueError(_nothing_chosen(name, problem, experiment))
    row = rows[name, problem]
    return Preset(
        codename=name,
        problem=problem,
        experiment=experiment,
        overrides=_overrides(row, options),
        components=int(row["initial_components"]),
        mean=_per_dimension(row["initial_mean"]),
        mean_scale=_per_dimension(row["initial_mean_scale"]),
        variance=_per_dimension(row["initial_covariance"]),
        max_seconds=_seconds(row["paper_time_limit"]),
        max_iterations=int(row["iteration_limit"]),
    )


def codenames(experiment: int = MAIN_EXPERIMENT) -> tuple[str, ...]:
    """The algorithms this experiment of the paper has hyperparameters for."""
    return tuple(dict.fromkeys(codename for codename, _ in published_rows(experiment)))


def problems(codename: str, experiment: int = MAIN_EXPERIMENT) -> tuple[str, ...]:
    """The problems this experiment of the paper has hyperparameters for, with this algorithm."""
    return tuple(problem for name, problem in published_rows(experiment) if name == codename.upper())


def _nothing_chosen(name: str, problem: str, experiment: int) -> str:
    """Why there is no preset, and where there is one."""
    if problems(name, experiment):
        here = f"for {name} on {problem!r}; for {name} it has them on {', '.join(problems(name, experiment))}"
    else:
        here = f"for {name}; it has them for {', '.join(codenames(experiment))}"
    elsewhere = [
        f" Experiment {number} has them for {name} on {problem} (preset {preset})."
        for preset, number in EXPERIMENTS.items()
        if number != experiment and (name, problem) in published_rows(number)
    ]
    return f"The paper's Experiment {experiment} has no hyperparameters {here}.{''.join(elsewhere)}"


@functools.cache
def published_rows(experiment: int) -> dict[tuple[str, str], dict[str, str]]:
    """The published settings of an experiment, by codename and problem."""
    if experiment not in EXPERIMENTS.values():
        known = " and ".join(str(number) for number in sorted(EXPERIMENTS.values()))
        raise ValueError(
            f"Hyperparameters are known of the paper's experiments {known}, not of {experiment!r}."
        )
    file = importlib.resources.files("natmix.experiments.presets").joinpath(f"experiment{experiment}.csv")
    text = file.read_text(encoding="utf-8")
    return {(row["codename"], row["problem"]): row for row in csv.DictReader(text.splitlines())}


def _overrides(row: dict[str, str], options: Mapping[str, type[Option]]) -> dict[str, dict[str, Any]]:
    chosen: dict[str, dict[str, Any]] = {
        "sample_selector": {
            "desired_samples": int(row["desired_samples"]),
            "reuse_ratio": float(row["reuse_ratio"]),
        },
        "ng_estimator": {
            "self_normalised": _flag(row["ng_self_normalised"]),
            "own_samples_only": _flag(row["own_samples_only"]),
        },
        "component_stepsize": _stepsizes(row, "component"),
        "weight_stepsize": _stepsizes(row, "weight"),
        "weight_updater": {"self_normalised": _flag(row["weight_self_normalised"])},
    }
    if row["add_iters"]:
        stored = min(int(row["max_stored_samples"]), MOST_STORED)
        chosen["component_adaptation"] = {
            "add_iters": int(row["add_iters"]),
            "del_iters": int(row["del_iters"]),
            "max_components": int(row["max_components"]),
            "database_candidates": int(row["add_database_candidates"]),
            "prior_candidates": int(row["add_prior_candidates"]),
            "database_size": stored if _flag(row["keep_samples"]) else 0,
        }
    for module, values in chosen.items():
        known = {name for name, _, _ in options[module].hyperparameters()}
        assert known >= set(values), f"{module} has no {set(values) - known}"
    return chosen


def _stepsizes(row: dict[str, str], of: str) -> dict[str, float]:
    cells = (row[f"{of}_stepsize"], row[f"{of}_stepsize_min"], row[f"{of}_stepsize_max"])
    return {name: float(cell) for name, cell in zip(_LIMITS, cells, strict=True) if cell}


def _flag(cell: str) -> bool:
    return {"True": True, "False": False}[cell]


def _per_dimension(cell: str) -> float | tuple[float, ...]:
    value = json.loads(cell)
    return tuple(map(float, value)) if isinstance(value, list) else float(value)


def _seconds(cell: str) -> float:
    """The seconds of a time written d-hh:mm:ss."""
    days, clock = cell.split("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    return float(((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds)
