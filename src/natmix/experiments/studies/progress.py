"""What of a study is planned, running and done, as one client sees it."""

import heapq
from collections.abc import Callable, Iterator
from pathlib import Path

from natmix.experiments.studies.definition import CellKey, Study
from natmix.experiments.studies.pruning import bars
from natmix.experiments.studies.settings_source import (
    AbstractSettings,
    GivenSettings,
    SettingResult,
    settings_in,
)
from natmix.experiments.studies.study_folder import PlannedBatch, StudyFolder, TrialOutcome
from natmix.experiments.studies.trial_runner import Setting


class ResultStorage:
    """Where results are kept beside the study's folder; this one keeps none."""

    def forget_unplanned(self, cell: CellKey, first: int) -> None:
        """Forget settings at this position and later ones: a process was killed before it planned them."""

    def planned(self, cell: CellKey, position: int, settings: dict[str, Setting]) -> int | None:
        """Note a setting that was chosen elsewhere; returns its number in the storage."""
        return None

    def finished(self, cell: CellKey, stored: int, result: SettingResult) -> None:
        """Note a result."""


class CellProgress:
    """A codename on a problem.

    Attributes:
        cell: which.
        index: its position in the study.
        total: settings to try.
        settings: that are planned.
        outcomes: of trials, by the positions of setting and seed.
        stored: numbers of the settings in the storage of results.
        is_tidy: whether that storage has nothing that is not planned, as far as this client knows.
    """

    def __init__(self, study: Study, index: int, folder: StudyFolder) -> None:
        self.cell, self.index = study.cells[index], index
        self.total = settings_in(study, self.cell)
        self.settings: list[dict[str, Setting]] = []
        self.outcomes: dict[tuple[int, int], TrialOutcome] = {}
        self.stored: list[int] = []
        self._study, self._folder, self._batches = study, folder, 0
        self.is_tidy = False
        self._left: dict[int, int] = {}
        """Trials without outcome of each setting that has some."""

    def read_batches(self) -> Iterator[int]:
        """Numbers of the trials of batches that were planned since, by any process."""
        study = self._study
        while self._folder.batch_file(self.cell, self._batches).is_file():
            planned = self._folder.read_batch(self.cell, self._batches)
            first = len(self.settings)
            self.settings += planned.settings
            self.stored += planned.stored
            self._batches += 1
            for position in range(first, len(self.settings)):
                self._left[position] = len(study.seeds)
                for seed in range(len(study.seeds)):
                    yield study.trial_number(self.index, position, seed)

    @property
    def next_batch(self) -> int:
        """The number of the next batch."""
        return self._batches

    @property
    def next_positions(self) -> range:
        """Settings of the next batch."""
        first = len(self.settings)
        return range(first, min(first + self._study.search.batch, self.total))

    @property
    def is_idle(self) -> bool:
        """Whether all that is planned is done."""
        return not self._left

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.is_idle and len(self.settings) >= self.total

    def settle(self, position: int, seed: int, outcome: TrialOutcome) -> SettingResult | None:
        """Take an outcome; returns the setting's result if it was the last of its trials."""
        if (position, seed) in self.outcomes:
            return None
        self.outcomes[position, seed] = outcome
        self._left[position] -= 1
        if self._left[position]:
            return None
        del self._left[position]
        return self.result(position)

    def result(self, position: int) -> SettingResult:
        """What a setting came to so far."""
        seeds = range(len(self._study.seeds))
        found = [self.outcomes[position, seed] for seed in seeds if (position, seed) in self.outcomes]
        return SettingResult(position, dict(self.settings[position]), found)

    def results(self) -> list[SettingResult]:
        """Of all settings whose trials have outcomes."""
        return [self.result(p) for p in range(len(self.settings)) if p not in self._left]

    def finished_trials(self) -> list[TrialOutcome]:
        """Outcomes of all trials in the order of their numbers."""
        return [self.outcomes[key] for key in sorted(self.outcomes)]


class StudyProgress:
    """A study as one client sees it: plans batches when they are due, and says what to run next.

    Attributes:
        study: the study.
        folder: of it.
        cells: its parts.
    """

    def __init__(
        self,
        folder: StudyFolder,
        study: Study,
        source: AbstractSettings | None = None,
        storage: ResultStorage | None = None,
    ) -> None:
        self.folder, self.study = folder, study
        self.cells = [CellProgress(study, i, folder) for i in range(len(study.cells))]
        self._source = source or GivenSettings(study)
        self._storage = storage or ResultStorage()
        self._waits = self._source.learns or study.pruning.kind != "none"
        self._runnable: list[int] = []
        self._open = list(self.cells)

    def read(self) -> None:
        """Read all that is planned and done."""
        for cell in self.cells:
            for number in cell.read_batches():
                self._add(number)

    @property
    def is_done(self) -> bool:
        """Whether every trial has an outcome."""
        self._open = [cell for cell in self._open if not cell.is_done]
        return not self._open

    def next(self, fits: Callable[[int], bool] = lambda cell: True) -> int | None:
        """The next trial to run, of a cell that fits; None if there is none now."""
        number = self._first(fits)
        while number is None and self._plan(fits):
            number = self._first(fits)
        return number

    def _first(self, fits: Callable[[int], bool]) -> int | None:
        """The first trial that can be run, of a cell that fits."""
        if self._runnable and fits(self.study.positions(self._runnable[0])[0]):
            return heapq.heappop(self._runnable)
        found = min((n for n in self._runnable if fits(self.study.positions(n)[0])), default=None)
        if found is not None:
            self._runnable.remove(found)
            heapq.heapify(self._runnable)
        return found

    def put_back(self, number: int) -> None:
        """Run a trial again, later."""
        heapq.heappush(self._runnable, number)

    def settle(self, number: int) -> TrialOutcome | None:
        """Take note of a trial's outcome, if it has one now."""
        outcome = self.folder.outcome(number)
        if outcome is not None:
            self._take(number, outcome)
        return outcome

    def _add(self, number: int) -> None:
        """A planned trial: done before, or to be run."""
        if (self.folder.trial(number) / "outcome.json").is_file():
            outcome = self.folder.outcome(number)
            assert outcome is not None
            self._take(number, outcome)
        else:
            heapq.heappush(self._runnable, number)

    def _take(self, number: int, outcome: TrialOutcome) -> None:
        index, position, seed = self.study.positions(number)
        cell = self.cells[index]
        result = cell.settle(position, seed, outcome)
        if result is not None and cell.stored:
            self._storage.finished(cell.cell, cell.stored[position], result)

    def _plan(self, fits: Callable[[int], bool]) -> bool:
        """Plan the next batch of those fitting cells that are furthest behind; whether one was due."""
        due = [c for c in self._open if c.next_positions and (c.is_idle or not self._waits)]
        due = [cell for cell in due if fits(cell.index)]
        if not due:
            return False
        least = min(len(cell.settings) for cell in due)
        with self.folder.planning():
            for cell in due:
                if len(cell.settings) == least:
                    self._plan_cell(cell)
        return True

    def _plan_cell(self, cell: CellProgress) -> None:
        if not self.folder.batch_file(cell.cell, cell.next_batch).is_file():
            self.folder.write_batch(cell.cell, cell.next_batch, self._batch(cell))
        for number in cell.read_batches():
            self._add(number)

    def _batch(self, cell: CellProgress) -> PlannedBatch:
        if not cell.is_tidy:
            self._storage.forget_unplanned(cell.cell, len(cell.settings))
            cell.is_tidy = True
        positions, results = cell.next_positions, cell.results() if self._waits else []
        settings, stored = self._source.batch(cell.cell, positions, results)
        if not stored:
            noted = [
                self._storage.planned(cell.cell, position, dict(setting))
                for position, setting in zip(positions, settings, strict=True)
            ]
            stored = [number for number in noted if number is not None]
        earlier = cell.finished_trials() if self._waits else []
        limits = [bars(self.study.pruning, position, earlier) for position in positions]
        return PlannedBatch(settings, limits, stored)


def open_progress(path: str | Path) -> StudyProgress:
    """What is planned and done in a folder, to look at."""
    folder = StudyFolder(path)
    progress = StudyProgress(folder, folder.study())
    progress.read()
    return progress
