"""The interface between a study and what runs its trials: one at a time, or many as one program.

A study hands trials to an `AbstractTrialRunner` while it is `free`, advances them and reads their progress.
Each trial leaves a run directory, ``terms.folder(number)``, as `natmix run` has it.
"""

import abc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from natmix.engine.limits import Limits
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.config import RunConfig, configure
from natmix.experiments.runs.elbo_evaluation import EvaluationTimes
from natmix.experiments.studies.budget_curve import BarJudge
from natmix.modules.codenames import MODULES

Setting = bool | int | float | str
"""A value of a hyperparameter or of an option of the problem; a file's value is the first that fits."""

COMPONENTS = "start.components"
"""The setting that is the number of initial components."""
WHOLE_ALGORITHM = ("temperature", "zero_penalty")
"""Settings of no module."""


class Trial(NamedTuple):
    """One run of an algorithm on a problem.

    Attributes:
        number: in its study; no two trials of a study share one.
        problem: its name in the study, for ``terms.load``.
        codename: seven letters, in the order of SAMTRON.
        settings: values by "module.hyperparameter", "problem.option", "start.components", "temperature" or
            "zero_penalty"; what is not named is as the preset has it.
        seed: of the run and of the problem's random parts.
        bars: the -ELBO above which it is pruned at the end of each part of the budget; None: never.
    """

    number: int
    problem: str
    codename: str
    settings: dict[str, Setting]
    seed: int
    bars: tuple[float | None, ...] = ()


class TrialProgress(NamedTuple):
    """How far a trial is.

    Attributes:
        trial: which.
        iterations: done.
        evaluations: of the target.
        seconds: of its clock, with compilation; trials that run together share a clock.
        elbo: the last evaluation of the ELBO; NaN before the first.
        finished: whether it has ended: by a limit, by `AbstractTrialRunner.stop`, or by a failure.
        failure: why it could not go on; empty if nothing went wrong.
        diverged: whether that is because the algorithm diverged: it would the next time, too.
    """

    trial: Trial
    iterations: int
    evaluations: int
    seconds: float
    elbo: float
    finished: bool
    failure: str
    diverged: bool = False


class TrialTerms(NamedTuple):
    """What all trials of a study share.

    Attributes:
        limits: when a trial ends; the same for all, so that they compare.
        load: the problem of a trial: its name, its seed and the options among its settings are used.
        folder: the run directory of the trial with a number.
        preset: completes the settings, as in `natmix.experiments.runs.configure`.
        covariance: the covariance family.
        dtype: "float32" or "float64".
        checkpoint_seconds: between checkpoints.
        times: of evaluations of the ELBO; None: by the clock.
    """

    limits: Limits
    load: Callable[[Trial], Problem]
    folder: Callable[[int], Path]
    preset: str = "fit"
    covariance: str = "full"
    dtype: str = "float32"
    checkpoint_seconds: float = 60.0
    times: EvaluationTimes | None = None

    def judge(self, trial: Trial) -> BarJudge:
        """What ends the trial where it is above its bars."""
        return BarJudge(len(trial.bars) + 1, self.limits, trial.bars)

    def configure(self, trial: Trial, problem: Problem) -> RunConfig:
        """The configuration of the trial's run directory."""
        parts = parted(trial.settings)
        return configure(
            problem,
            trial.codename,
            preset=self.preset,
            overrides=parts.overrides,
            components=parts.components,
            covariance=self.covariance,
            dtype=self.dtype,
            limits=self.limits,
            problem_options=parts.problem_options,
        )


class SettingParts(NamedTuple):
    """Settings as `natmix.experiments.runs.configure` takes them.

    Attributes:
        overrides: hyperparameters by module.
        components: to start with; None if no setting says so.
        problem_options: of the problem.
    """

    overrides: dict[str, Any]
    components: int | None
    problem_options: dict[str, Any]


def parted(settings: Mapping[str, Setting]) -> SettingParts:
    """Settings by what they belong to.

    Raises:
        ValueError: a name is none of a setting.
    """
    overrides: dict[str, Any] = {}
    components: int | None = None
    options: dict[str, Any] = {}
    for name, value in settings.items():
        module, _, hyperparameter = name.partition(".")
        if name == COMPONENTS:
            components = int(value)
        elif name in WHOLE_ALGORITHM:
            overrides[name] = value
        elif module == "problem" and hyperparameter:
            options[hyperparameter] = value
        elif module in MODULES and hyperparameter:
            overrides.setdefault(module, {})[hyperparameter] = value
        else:
            raise ValueError(
                f"{name!r} is no setting: write module.hyperparameter, such as component_stepsize.stepsize, "
                f"problem.option, {COMPONENTS}, {' or '.join(WHOLE_ALGORITHM)}."
            )
    return SettingParts(overrides, components, options)


class AbstractTrialRunner(abc.ABC):
    """Runs trials of one study in this process.

    A trial that was interrupted goes on from the checkpoint in its run directory when it is submitted again;
    one whose run directory is finished is reported as finished by the next `advance`. A failure of one trial
    is its own: it is reported, and the others go on.
    """

    @property
    @abc.abstractmethod
    def free(self) -> int:
        """How many more trials it takes now."""

    @abc.abstractmethod
    def submit(self, trial: Trial) -> None:
        """Take a trial; at most `free` of them before the next `advance`."""

    @abc.abstractmethod
    def advance(self) -> list[TrialProgress]:
        """Run for a while (a second or so, more while compiling), and report every trial that it holds.

        A finished trial is reported once and held no longer: its run directory is complete then, with
        ``final.json`` or ``failed.json``.
        """

    @abc.abstractmethod
    def stop(self, number: int) -> None:
        """End a trial early: ``final.json`` says that it stopped as `PRUNED`, and `advance` reports it."""

    @abc.abstractmethod
    def close(self) -> None:
        """Leave checkpoints of all trials that it holds, and hold them no longer."""
