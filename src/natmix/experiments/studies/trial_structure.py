"""What decides which trials share a compiled program."""

from typing import NamedTuple

from natmix.experiments.problems.base import Problem
from natmix.experiments.studies.batch_form import BatchForm, batch_form
from natmix.experiments.studies.trial_runner import Setting, Trial, TrialTerms
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import Rest, parted


class TrialStructure(NamedTuple):
    """Trials with equal structures may share a `natmix.experiments.studies.trial_batch.TrialBatch`.

    Attributes:
        problem: its name.
        problem_options: settings of the problem.
        static: everything of the masked algorithm that is not an array: its codename is part of that.
    """

    problem: str
    problem_options: tuple[tuple[str, Setting], ...]
    static: Rest


def structure_of(trial: Trial, terms: TrialTerms, form: BatchForm | None = None) -> TrialStructure:
    """The structure of a trial under the terms of its study.

    Trials of one problem and codename have the same structure if they differ in the seed, in the number of
    initial components, in hyperparameters that are arrays, and in numbers below the same bounds
    (`GMMVI.masked`).

    Args:
        trial: any.
        terms: of its study.
        form: with its bounds; by default the one that suits the platform.
    """
    config = terms.configure(trial, terms.load(trial))
    return structure(trial, (form or batch_form(terms.limits)).algorithm(config))


def structure(trial: Trial, masked: GMMVI) -> TrialStructure:
    """The structure of a trial with this masked algorithm."""
    return TrialStructure(trial.problem, problem_settings(trial), parted(masked)[1])


def problem_settings(trial: Trial) -> tuple[tuple[str, Setting], ...]:
    """The settings that belong to the problem."""
    return tuple(sorted((k, v) for k, v in trial.settings.items() if k.startswith("problem.")))


class LoadedProblems:
    """Problems of trials, each loaded once."""

    def __init__(self, terms: TrialTerms) -> None:
        self._terms = terms
        self._known: dict[tuple[str, tuple[tuple[str, Setting], ...], int], Problem] = {}

    def __call__(self, trial: Trial) -> Problem:
        """The problem of a trial."""
        key = (trial.problem, problem_settings(trial), trial.seed)
        if key not in self._known:
            self._known[key] = self._terms.load(trial)
        return self._known[key]
