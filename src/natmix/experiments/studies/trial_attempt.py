"""What is written down about an attempt at a trial: that it began, and how it ended."""

import functools
import math
import os
import shutil
import socket
from typing import Any, Literal

import jax
import jax.numpy as jnp

from natmix.experiments import problems
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.checkpoint import load_records
from natmix.experiments.runs.directory import CONFIG, SeedFiles
from natmix.experiments.runs.rows import read_evaluations, read_failure, read_final
from natmix.experiments.studies.budget_curve import PRUNED, BudgetCurve, evaluation_times
from natmix.experiments.studies.definition import Study
from natmix.experiments.studies.model_problem import load_model
from natmix.experiments.studies.study_folder import Attempt, StudyFolder, TrialOutcome
from natmix.experiments.studies.trial_runner import (
    AbstractTrialRunner,
    Trial,
    TrialProgress,
    TrialTerms,
    parted,
)
from natmix.files.generations import exists
from natmix.kernels.compilation_cache import use_compilation_cache

MOST_DEATHS = 25
"""So often a trial's process may be killed after the same number of iterations before it has failed."""
SUSPICIOUS_DEATHS = 3
"""After so many the trial runs alone."""
PROGRAMS_KEPT = 20
"""Trials, or batches of them, after which a process forgets its compiled programs: they hold memory."""

Report = Literal["done", "busy", "again", "interrupted"]
"""Of an attempt: the trial has an outcome; another process runs it; it failed and may be tried again; it
stopped because this process was asked to."""


@functools.lru_cache(maxsize=4)
def _study_in(path: str, changed: int) -> Study:
    return StudyFolder(path).study()


def study_in(folder: StudyFolder) -> Study:
    """The study of a folder, read once while it does not change."""
    return _study_in(str(folder.path), (folder.path / "study.json").stat().st_mtime_ns)


def planned_trial(folder: StudyFolder, study: Study, number: int) -> Trial:
    """A trial, from the plan."""
    cell_at, position, seed_at = study.positions(number)
    cell = study.cells[cell_at]
    batch, within = divmod(position, study.search.batch)
    planned = folder.read_batch(cell, batch)
    return Trial(
        number,
        cell.problem,
        cell.codename,
        planned.settings[within],
        study.seeds[seed_at],
        tuple(planned.bars[within]),
    )


def load_problem(study: Study, trial: Trial) -> Problem:
    """The problem of a trial."""
    problem = study.problems[trial.problem]
    options = {**problem.options, **parted(trial.settings).problem_options}
    if problem.source is not None:
        return load_model(problem.source, problem.name, options, study.dtype)
    return problems.load(problem.name, seed=trial.seed, dtype=jnp.dtype(study.dtype), **options)


def terms_of(folder: StudyFolder, study: Study, problem: str) -> TrialTerms:
    """What all trials of a study on one problem share."""
    limits = study.problems[problem].limits
    return TrialTerms(
        limits=limits,
        load=functools.partial(load_problem, study),
        folder=folder.run_folder,
        preset=study.preset,
        covariance=study.covariance,
        dtype=study.dtype,
        checkpoint_seconds=study.checkpoint_seconds,
        times=None if study.pruning.kind == "none" else evaluation_times(study.pruning.rungs, limits),
    )


_programs_here = 0


def prepare_process(dtype: str) -> None:
    """Set up JAX in a process that runs trials, before those that may share a program."""
    global _programs_here
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    use_compilation_cache()
    _programs_here += 1
    if _programs_here % PROGRAMS_KEPT == 0:
        jax.clear_caches()


class TrialAttempt:
    """One attempt at a trial that this process has claimed.

    Attributes:
        trial: which.
        terms: of its study.
        is_suspect: whether it runs alone, so that a crash is its own: an earlier attempt has failed, or its
            process was killed several times.
    """

    def __init__(self, folder: StudyFolder, study: Study, trial: Trial) -> None:
        self.trial, self.terms = trial, terms_of(folder, study, trial.problem)
        self._folder, self._study, self._number = folder, study, trial.number
        self._before = folder.attempts(trial.number)
        self._files = SeedFiles(folder.run_folder(trial.number), trial.seed)
        self._errors = [attempt.reason for attempt in self._before if attempt.event == "error"]
        self._iterations = self._iterations_before()
        self._deaths = deaths(self._before, self._iterations)
        self.is_suspect = bool(self._errors) or self._deaths >= SUSPICIOUS_DEATHS

    def begin(self, runner: AbstractTrialRunner) -> Report | None:
        """Give the trial to its runner; returns how it ended, if it has ended at once."""
        if len(self._errors) > self._study.retries:
            return self._fail(self._errors[-1])
        if self._deaths >= MOST_DEATHS:
            return self._fail(
                f"its process was killed {self._deaths} times after {self._iterations} iterations, perhaps "
                "because it took too much memory"
            )
        self._note("begin", self._iterations)
        run = self._folder.run_folder(self._number)
        if not (run / CONFIG).is_file():  # a process was killed while it made the folder
            shutil.rmtree(run, ignore_errors=True)
        try:
            runner.submit(self.trial)
        except (ValueError, ImportError, FileNotFoundError) as error:  # the next time, too
            return self._fail(str(error))
        except Exception as error:
            return self.failed(error)
        return None

    def ended(self, progress: TrialProgress) -> Report:
        """The runner has finished it."""
        try:
            if progress.diverged:  # it would the next time, too
                return self._fail(progress.failure)
            return self._failed(progress.failure) if progress.failure else self._finish()
        except Exception as error:
            return self.failed(error)

    def failed(self, error: Exception) -> Report:
        """Its runner could not go on; it may be tried again, so often."""
        return self._failed(f"{type(error).__name__}: {error}")

    def interrupted(self) -> Report:
        """It has left a checkpoint."""
        self._note("interrupted", 0)
        return "interrupted"

    def _finish(self) -> Report:
        final = read_final(self._files.final, self.trial.seed)
        assert final is not None
        curve = BudgetCurve(self._study.pruning.rungs, self.terms.limits)
        rows = read_evaluations(self._files.metrics)
        for row in rows:
            curve.add(row["iterations"], row["evaluations"], row["seconds"], row["neg_elbo"])
        objective = self._study.objective
        best = min((row["neg_elbo"] for row in rows if math.isfinite(row["neg_elbo"])), default=math.nan)
        value = {**final, "best_neg_elbo": best}.get(objective.metric)
        pruned = final["stopped"] == PRUNED
        if not isinstance(value, (int, float)):
            known = ", ".join(sorted(name for name, v in final.items() if isinstance(v, (int, float))))
            return self._fail(f"the run has no metric {objective.metric!r}; it has best_neg_elbo, {known}")
        if not math.isfinite(value) and not pruned:
            return self._fail(_divergence(final, objective.metric, value))
        self._write(final, curve.values, "pruned" if pruned else "complete", value, final["stopped"])
        return "done"

    def _write(
        self,
        final: dict[str, Any],
        curve: list[float | None],
        state: Literal["complete", "pruned", "failed"],
        value: float | None,
        reason: str,
    ) -> None:
        numbers = {
            name: final.get(name) if math.isfinite(final.get(name, math.nan)) else None
            for name in ("neg_elbo", "neg_elbo_se")
        }
        self._folder.write_outcome(
            TrialOutcome(
                number=self._number,
                state=state,
                value=value if value is not None and math.isfinite(value) else None,
                iterations=final.get("iterations", 0),
                evaluations=final.get("evaluations", 0),
                seconds=final.get("seconds", 0.0),
                compile_seconds=final.get("compile_seconds", 0.0),
                components=final.get("components", 0),
                attempts=1 + sum(attempt.event == "begin" for attempt in self._before),
                reason=reason,
                curve=curve,
                **numbers,
            )
        )

    def _failed(self, reason: str) -> Report:
        self._note("error", 0, reason)
        return self._fail(reason) if len(self._errors) >= self._study.retries else "again"

    def _fail(self, reason: str) -> Report:
        final = read_final(self._files.final, self.trial.seed) or read_failure(self._files.failed) or {}
        self._write(final, [], "failed", None, reason)
        return "done"

    def _iterations_before(self) -> int:
        path = self._files.checkpoint
        return load_records(path).progress["iterations"] if exists(path) else 0

    def _note(self, event: str, iterations: int, reason: str = "") -> None:
        process = f"{socket.gethostname()} {os.getpid()}"
        self._folder.note(self._number, Attempt(event, iterations, reason, process))


def note_crash(folder: StudyFolder, number: int, reason: str) -> None:
    """Count a crash of a trial's process as a failure.

    Unless the trial was not running there, or another process runs it by now.
    """
    with folder.claim(number) as mine:
        attempts = folder.attempts(number)
        was_running = bool(attempts) and attempts[-1].event == "begin"
        if mine and was_running and folder.outcome(number) is None:
            folder.note(number, Attempt("error", 0, reason, ""))


def deaths(attempts: list[Attempt], iterations: int) -> int:
    """How many of the last attempts have no end and came no further than this."""
    count = 0
    for i in range(len(attempts) - 1, -1, -1):
        ended = i + 1 < len(attempts) and attempts[i + 1].event != "begin"
        if attempts[i].event != "begin" or ended or attempts[i].iterations != iterations:
            break
        count += 1
    return count


def _divergence(final: dict[str, Any], metric: str, value: float) -> str:
    shares = [
        f"{100 * final[name]:.3g} % of the final samples have {words}"
        for name, words in (("zero_share", "density zero"), ("invalid_share", "no valid log density"))
        if final.get(name)
    ]
    return f"diverged: its final {metric} is {value:g}{''.join('; ' + share for share in shares)}"
