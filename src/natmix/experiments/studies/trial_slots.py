"""The trials that a process runs at once: claimed, given to a runner, and replaced when they end."""

import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from natmix.experiments.studies.single_trials import SingleTrials
from natmix.experiments.studies.study_folder import Attempt, StudyFolder
from natmix.experiments.studies.trial_attempt import (
    Report,
    TrialAttempt,
    planned_trial,
    prepare_process,
    study_in,
)
from natmix.experiments.studies.trial_batch import TrialBatch
from natmix.experiments.studies.trial_runner import AbstractTrialRunner, Trial, TrialTerms
from natmix.interrupts import Interrupt

WAITING = 3
"""Trials that wait for each slot of a batch, so that those of one structure are found."""


def room(slots: int) -> int:
    """How many trials a process should be given at once."""
    return slots if slots == 1 else (1 + WAITING) * slots


RunnerMaker = Callable[[TrialTerms, Interrupt], AbstractTrialRunner]


class _Running(NamedTuple):
    attempt: TrialAttempt
    claim: contextlib.ExitStack


class TrialSlots:
    """Runs trials of a study in this process: one after another, or a batch of equal structure.

    Trials that are submitted wait until the running ones have their structure, or have ended. A trial of
    which an earlier attempt failed runs alone.
    """

    def __init__(
        self,
        path: str | Path,
        slots: int = 1,
        interrupt: Interrupt | None = None,
        single: RunnerMaker = SingleTrials,
    ) -> None:
        """Without trials.

        Args:
            path: of the study's folder.
            slots: trials at once; fewer if memory is short.
            interrupt: ends all attempts, with checkpoints.
            single: makes what runs a trial alone.
        """
        self._folder, self._slots, self._single = StudyFolder(path), slots, single
        self._interrupt = interrupt or Interrupt()
        self._waiting: deque[int] = deque()
        self._running: dict[int, _Running] = {}
        self._runner: AbstractTrialRunner | None = None
        self._others: set[int] = set()
        """Those that wait and do not have the structure of the running ones."""

    @property
    def held(self) -> int:
        """Trials that wait or run."""
        return len(self._waiting) + len(self._running)

    def submit(self, number: int) -> None:
        """Take a trial."""
        self._waiting.append(number)

    def advance(self) -> list[tuple[int, Report]]:
        """Run for a second or so; returns the attempts that have ended."""
        if self._interrupt.asked:
            return self.close()
        ended = self._begin()
        if self._runner is None or not self._running:
            return ended
        try:
            reports = self._runner.advance()
        except Exception as error:
            why = error
            return ended + self._end_all(lambda attempt: attempt.failed(why))
        for report in reports:
            if report.finished:
                running = self._running.pop(report.trial.number)
                with running.claim:
                    ended.append((report.trial.number, running.attempt.ended(report)))
        return ended

    def close(self) -> list[tuple[int, Report]]:
        """Leave checkpoints of all that run, and hold nothing."""
        ended: list[tuple[int, Report]] = [(number, "interrupted") for number in self._waiting]
        self._waiting.clear()
        return ended + self._end_all(TrialAttempt.interrupted)

    def _end_all(self, how: Callable[[TrialAttempt], Report]) -> list[tuple[int, Report]]:
        running, self._running = self._running, {}
        self._leave_runner()
        ended = []
        for number, each in running.items():
            with each.claim:
                ended.append((number, how(each.attempt)))
        return ended

    def _leave_runner(self) -> None:
        runner, self._runner = self._runner, None
        self._others.clear()
        if runner is not None:
            runner.close()

    def _begin(self) -> list[tuple[int, Report]]:
        """Begin the trials that wait, as far as they can run now; returns those that ended at once."""
        ended = []
        if not self._running:
            self._others.clear()
        for number in list(self._waiting):
            if self._running and (self._runner is None or not self._runner.free):
                break
            if number in self._others:
                continue
            try:
                report = self._begin_one(number)
            except Exception:  # such as a damaged plan; if this ends the process, it is this trial's crash
                self._folder.note(number, Attempt("begin", 0, "", ""))
                raise
            if report is not None:
                ended.append((number, report))
        return ended

    def _begin_one(self, number: int) -> Report | None:
        """Begin a trial; returns how its attempt ended, if it did at once."""
        if self._folder.outcome(number) is not None:
            self._waiting.remove(number)
            return "done"
        study = study_in(self._folder)
        trial = planned_trial(self._folder, study, number)
        if self._running and not self._fits(trial):
            self._others.add(number)
            return None
        with contextlib.ExitStack() as claim:
            mine = claim.enter_context(self._folder.claim(number))
            if not mine or self._folder.outcome(number) is not None:
                self._waiting.remove(number)
                return "done" if mine else "busy"
            attempt = TrialAttempt(self._folder, study, trial)
            if self._running and attempt.is_suspect:
                self._others.add(number)
                return None
            self._waiting.remove(number)
            if not self._running and (attempt.is_suspect or not self._fits(trial)):
                self._leave_runner()
            if self._runner is None:
                prepare_process(study.dtype)
                self._runner = self._new_runner(attempt)
            report = attempt.begin(self._runner)
            if report is None:
                self._running[number] = _Running(attempt, claim.pop_all())
            return report

    def _new_runner(self, attempt: TrialAttempt) -> AbstractTrialRunner:
        if self._slots == 1 or attempt.is_suspect:
            return self._single(attempt.terms, self._interrupt)
        return TrialBatch(attempt.terms, self._slots)

    def _fits(self, trial: Trial) -> bool:
        """Whether the present runner can take a trial."""
        try:
            return isinstance(self._runner, TrialBatch) and self._runner.fits(trial)
        except Exception:  # it cannot be run at all, and fails when it has a runner of its own
            return False


def attempt_trial(
    path: str | Path, number: int, interrupt: Interrupt | None = None, runner: RunnerMaker = SingleTrials
) -> Report:
    """Run a trial of the study in a folder, or go on with it, unless another process does.

    Args:
        path: of the study's folder.
        number: of the trial.
        interrupt: ends the attempt, with a checkpoint.
        runner: makes what runs it.
    """
    ((_, report),) = attempt_trials(path, [number], 1, interrupt, runner)
    return report


def attempt_trials(
    path: str | Path,
    numbers: list[int],
    slots: int,
    interrupt: Interrupt | None = None,
    runner: RunnerMaker = SingleTrials,
) -> list[tuple[int, Report]]:
    """The same for several trials, so many at once."""
    trials, ended = TrialSlots(path, slots, interrupt, runner), []
    for number in numbers:
        trials.submit(number)
    while trials.held:
        ended += trials.advance()
    return ended
