"""The client of a study: hands trials to a pool, and takes note of their outcomes."""

import time
from collections import deque
from pathlib import Path
from typing import NamedTuple, Protocol

from natmix.experiments.studies.definition import Study
from natmix.experiments.studies.pools import AbstractPool, PoolReport
from natmix.experiments.studies.progress import StudyProgress
from natmix.experiments.studies.settings_source import AbstractSettings, GivenSettings
from natmix.experiments.studies.study_folder import StudyFolder, TrialOutcome
from natmix.experiments.studies.trial_attempt import note_crash
from natmix.interrupts import Interrupt

POLL_SECONDS = 1.0
"""Between two looks at the trials that another client runs."""


class StudyWatcher(Protocol):
    """Is told how a study goes."""

    def settled(self, outcome: TrialOutcome, progress: StudyProgress) -> None:
        """A trial has ended."""

    def retried(self, number: int, why: str) -> None:
        """A trial is run again: it failed, or its process died."""


class SilentWatcher:
    """Does nothing."""

    def settled(self, outcome: TrialOutcome, progress: StudyProgress) -> None: ...
    def retried(self, number: int, why: str) -> None: ...


class StudyEnd(NamedTuple):
    """How a client ended.

    Attributes:
        progress: what is planned and done.
        interrupted: whether it was asked to stop; the same command goes on.
    """

    progress: StudyProgress
    interrupted: bool


def opened(folder: StudyFolder, study: Study) -> StudyProgress:
    """The progress of a study with the source of settings and the storage that it names."""
    if study.storage == "none":
        if study.search.sampler not in ("grid", "random"):
            raise ValueError(
                f"The sampler {study.search.sampler} learns from a storage: leave out storage = 'none'."
            )
        progress = StudyProgress(folder, study)
    else:
        from natmix.experiments.studies.optuna_search import OptunaSettings, OptunaStorage

        storage = OptunaStorage(folder, study)
        given = study.search.sampler in ("grid", "random")
        source: AbstractSettings = GivenSettings(study) if given else OptunaSettings(study, storage)
        progress = StudyProgress(folder, study, source, storage)
    progress.read()
    return progress


def run_study(
    path: str | Path,
    study: Study,
    pool: AbstractPool,
    interrupt: Interrupt | None = None,
    watcher: StudyWatcher | None = None,
) -> StudyEnd:
    """Run all trials of a study that have no outcome yet.

    Several clients may share the folder, on one machine or on several that see it.

    Args:
        path: of the study's folder; it is made.
        study: the study.
        pool: where trials run.
        interrupt: ends the client.
        watcher: is told how it goes.
    """
    folder = StudyFolder(path)
    progress = opened(folder, folder.create(study))
    client = _Client(progress, pool, interrupt or Interrupt(), watcher or SilentWatcher())
    client.run()
    return StudyEnd(progress, client.interrupt.asked)


class _Client:
    """Trials in a pool, and trials of other clients."""

    def __init__(
        self, progress: StudyProgress, pool: AbstractPool, interrupt: Interrupt, watcher: StudyWatcher
    ) -> None:
        self.interrupt = interrupt
        self._progress, self._pool, self._watcher = progress, pool, watcher
        self._running = 0
        self._elsewhere: deque[int] = deque()
        self._last_look = 0.0

    def run(self) -> None:
        """Until every trial has an outcome, or an interrupt."""
        while not self.interrupt.asked:
            self._look_elsewhere()
            self._fill()
            if self._running:
                for report in self._pool.wait(POLL_SECONDS):
                    self._running -= 1
                    self._take(report)
            elif self._elsewhere:
                time.sleep(min(POLL_SECONDS, 0.2))
            elif self._progress.is_done:
                return

    def _fill(self) -> None:
        while self._pool.free > 0 and not self.interrupt.asked:
            number = self._progress.next(self._pool.fits)
            if number is None:
                return
            self._running += 1
            self._pool.submit(number)

    def _take(self, ended: PoolReport) -> None:
        number = ended.number
        if ended.report == "done":
            self._settle(number)
        elif ended.report == "busy":
            self._elsewhere.append(number)
        elif ended.report == "interrupted":
            self._progress.put_back(number)
        else:
            if ended.report == "crashed":
                note_crash(self._progress.folder, number, ended.reason)
            words = {"lost": "its process was killed", "crashed": ended.reason}
            self._watcher.retried(number, words.get(ended.report, "it failed"))
            self._progress.put_back(number)

    def _settle(self, number: int) -> None:
        outcome = self._progress.settle(number)
        assert outcome is not None
        self._watcher.settled(outcome, self._progress)

    def _look_elsewhere(self) -> None:
        """Trials that another client ran: they are done, or its process died, or they go on."""
        now = time.monotonic()
        if not self._elsewhere or now - self._last_look < POLL_SECONDS:
            return
        self._last_look = now
        for _ in range(len(self._elsewhere)):
            number = self._elsewhere.popleft()
            if (self._progress.folder.trial(number) / "outcome.json").is_file():
                self._settle(number)
            elif self._progress.folder.is_claimed(number):
                self._elsewhere.append(number)
            else:
                self._progress.put_back(number)
