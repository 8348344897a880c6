"""Where settings come from: grids and random draws, which need nothing but the space and a seed.

Equal for every number of processes, whenever they are killed: setting j of a cell follows from the study's
seed, the cell and j alone. `natmix.experiments.studies.optuna_search` has the samplers that learn from
results.
"""

import abc
import hashlib
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from natmix.experiments.studies.definition import CellKey, CellSpace, SearchRules, Study
from natmix.experiments.studies.domains import Choice, Domain, grid_size
from natmix.experiments.studies.study_folder import TrialOutcome
from natmix.experiments.studies.trial_runner import Setting


class SettingResult(NamedTuple):
    """What a setting came to.

    Attributes:
        position: of the setting in its cell.
        settings: its values.
        outcomes: of its trials, one per seed.
    """

    position: int
    settings: dict[str, Setting]
    outcomes: Sequence[TrialOutcome]

    @property
    def value(self) -> float | None:
        """The mean of the objective over the seeds; None unless all trials are complete."""
        values = [o.value for o in self.outcomes if o.state == "complete" and o.value is not None]
        return float(np.mean(values)) if values and len(values) == len(self.outcomes) else None

    @property
    def state(self) -> str:
        """The worst state of its trials."""
        states = {o.state for o in self.outcomes}
        return next((state for state in ("failed", "pruned") if state in states), "complete")


class AbstractSettings(abc.ABC):
    """Chooses settings, batch by batch."""

    @property
    @abc.abstractmethod
    def learns(self) -> bool:
        """Whether a batch depends on the results of the earlier ones, which it then waits for."""

    @abc.abstractmethod
    def batch(
        self, cell: CellKey, positions: range, results: Sequence[SettingResult]
    ) -> tuple[list[dict[str, Setting]], list[int]]:
        """Settings at these positions in a cell, and their numbers in a storage, if there is one.

        Args:
            cell: the codename on the problem.
            positions: of the settings.
            results: of all earlier settings, if it `learns`.
        """


class GivenSettings(AbstractSettings):
    """A grid, or random draws."""

    def __init__(self, study: Study) -> None:
        self._study = study

    @property
    def learns(self) -> bool:
        return False

    def batch(
        self, cell: CellKey, positions: range, results: Sequence[SettingResult]
    ) -> tuple[list[dict[str, Setting]], list[int]]:
        search, space = self._study.search, self._study.spaces[cell]
        if search.sampler == "grid":
            return [grid_setting(space, position) for position in positions], []
        return [random_setting(space, seed_of(search, cell, position)) for position in positions], []


def settings_in(study: Study, cell: CellKey) -> int:
    """How many settings of a cell a study tries."""
    space, trials = study.spaces[cell], study.search.trials
    if not axes(space):
        return 1
    if study.search.sampler != "grid":
        assert trials is not None
        return trials
    whole = grid_size([domain for _, domain in axes(space)])
    return whole if trials is None else min(trials, whole)


def axes(space: CellSpace) -> list[tuple[str, Domain]]:
    """What is searched: settings by name, and the positions in each group of joint choices."""
    groups = [
        (f"together{i if i else ''}", Choice(tuple(range(len(group)))))
        for i, group in enumerate(space.together)
    ]
    return [*space.free.items(), *groups]


def full_setting(space: CellSpace, values: dict[str, Any]) -> dict[str, Setting]:
    """All settings, from the values of the `axes`."""
    out = dict(space.fixed)
    out |= {name: values[name] for name in space.free}
    for i, group in enumerate(space.together):
        out |= group[values[f"together{i if i else ''}"]]
    return dict(sorted(out.items()))


def grid_setting(space: CellSpace, position: int) -> dict[str, Setting]:
    """A setting of a grid; the last axis changes first."""
    names = [name for name, _ in axes(space)]
    grids = [domain.grid() for _, domain in axes(space)]
    values = next(itertools.islice(itertools.product(*grids), position, None))
    return full_setting(space, dict(zip(names, values, strict=True)))


def random_setting(space: CellSpace, seed: int) -> dict[str, Setting]:
    """A random setting."""
    rng = np.random.default_rng(seed)
    return full_setting(space, {name: domain.draw(rng) for name, domain in axes(space)})


def seed_of(search: SearchRules, cell: CellKey, position: int) -> int:
    """A seed for one setting: a checksum of what it belongs to."""
    text = f"{search.seed}/{cell}/{position}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
