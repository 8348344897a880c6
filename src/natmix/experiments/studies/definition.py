"""What a study is, as plain data: problems, candidates, spaces, budgets, search."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from natmix.engine.limits import Limits
from natmix.experiments.studies.domains import Domain
from natmix.experiments.studies.model_problem import ModelSource
from natmix.experiments.studies.trial_runner import Setting

SAMPLERS = ("grid", "random", "tpe", "gp")
PRUNERS = ("none", "median", "hyperband")
STORAGES = ("journal", "sqlite", "none")


@dataclasses.dataclass(frozen=True)
class StudyProblem:
    """A problem of a study.

    Attributes:
        name: in the study.
        options: of the test problem, or arguments of the model's function.
        limits: when each trial on it ends.
        source: where the model is; None for a test problem.
    """

    name: str
    options: Mapping[str, Setting]
    limits: Limits
    source: ModelSource | None = None


class CellSpace(NamedTuple):
    """The search space of one codename on one problem.

    Attributes:
        fixed: settings with one value.
        free: settings to search, by name.
        together: groups of settings of which one is chosen as a whole.
    """

    fixed: dict[str, Setting]
    free: dict[str, Domain]
    together: tuple[tuple[dict[str, Setting], ...], ...] = ()


class CellKey(NamedTuple):
    """A codename on a problem."""

    problem: str
    codename: str

    def __str__(self) -> str:
        return f"{self.problem}-{self.codename}"


@dataclasses.dataclass(frozen=True)
class SearchRules:
    """How settings are chosen.

    Attributes:
        sampler: one of `SAMPLERS`.
        trials: settings per codename and problem; None for a whole grid.
        batch: settings chosen at once, from the results of all earlier batches.
        seed: of the sampler.
        startup: random settings before a model of the results is used (tpe, gp).
    """

    sampler: str = "random"
    trials: int | None = None
    batch: int = 4
    seed: int = 0
    startup: int = 8


@dataclasses.dataclass(frozen=True)
class PruningRules:
    """When a trial is ended early, by its curve of the ELBO.

    Attributes:
        kind: one of `PRUNERS`.
        rungs: parts of the budget; at the end of each but the last a trial may be pruned.
        startup: finished trials before any is pruned.
        factor: of hyperband: one of so many goes on.
    """

    kind: str = "none"
    rungs: int = 8
    startup: int = 4
    factor: int = 3


@dataclasses.dataclass(frozen=True)
class Objective:
    """What is to be small, or large.

    Attributes:
        metric: "neg_elbo", "best_neg_elbo" or another of a run's final numbers.
        maximize: whether it is to be large.
    """

    metric: str = "neg_elbo"
    maximize: bool = False


@dataclasses.dataclass(frozen=True)
class StudyChanges:
    """What options of a command change in a study file; None changes nothing.

    Attributes:
        scale: by which budgets are multiplied.
        problems: of its problems, those to keep.
        codenames: of its candidates, those to keep: codenames or patterns.
        trials: settings per codename and problem.
        seeds: instead of the file's.
        storage: instead of the file's.
    """

    scale: float = 1.0
    problems: tuple[str, ...] | None = None
    codenames: tuple[str, ...] | None = None
    trials: int | None = None
    seeds: tuple[int, ...] | None = None
    storage: str | None = None


class StudySource(NamedTuple):
    """A study file as text, from which the same study can be made again.

    Attributes:
        path: of the file, for messages.
        folder: where its models are looked for.
        text: of the file.
        changes: by options.
    """

    path: str
    folder: str
    text: str
    changes: StudyChanges = StudyChanges()


@dataclasses.dataclass(frozen=True)
class Study:
    """A study: every codename on every problem, with the same number of settings and the same seeds.

    Attributes:
        name: of the study.
        title: in a few words.
        problems: by name.
        codenames: the candidates, seven letters each.
        spaces: by problem and codename.
        seeds: every setting is run with each.
        preset: completes the settings, as in ``natmix run``.
        covariance: the covariance family.
        dtype: "float32" or "float64".
        search: how settings are chosen.
        pruning: when trials end early.
        objective: what counts.
        storage: one of `STORAGES`, or a URL of a database.
        retries: of a trial that failed.
        checkpoint_seconds: between checkpoints of a trial.
        scale: by which the budgets were multiplied.
        source: the file it was read from, and the changes.
    """

    name: str
    problems: dict[str, StudyProblem]
    codenames: tuple[str, ...]
    spaces: dict[CellKey, CellSpace]
    seeds: tuple[int, ...] = (0,)
    title: str = ""
    preset: str = "fit"
    covariance: str = "full"
    dtype: str = "float32"
    search: SearchRules = SearchRules()
    pruning: PruningRules = PruningRules()
    objective: Objective = Objective()
    storage: str = "journal"
    retries: int = 2
    checkpoint_seconds: float = 60.0
    scale: float = 1.0
    source: "StudySource | None" = None

    @property
    def cells(self) -> tuple[CellKey, ...]:
        """All codenames on all problems for which there is a space, problem by problem."""
        return tuple(self.spaces)

    def trial_number(self, cell: int, setting: int, seed: int) -> int:
        """The number of a trial from the positions of its cell, setting and seed; first settings first."""
        return (setting * len(self.spaces) + cell) * len(self.seeds) + seed

    def positions(self, number: int) -> tuple[int, int, int]:
        """Cell, setting and seed of a trial: the inverse of `trial_number`."""
        rest, seed = divmod(number, len(self.seeds))
        setting, cell = divmod(rest, len(self.spaces))
        return cell, setting, seed
