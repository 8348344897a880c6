"""What a worker does with a trial: claim it, run it, write down how it ended."""

import functools
import math
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp

from natmix.experiments import problems
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.checkpoint import load_records
from natmix.experiments.runs.directory import CONFIG, SeedFiles
from natmix.experiments.runs.rows import read_evaluations, read_final
from natmix.experiments.studies.definition import Study
from natmix.experiments.studies.model_problem import load_model
from natmix.experiments.studies.pruning import BudgetCurve, add_progress
from natmix.experiments.studies.single_trials import SingleTrials
from natmix.experiments.studies.study_folder import Attempt, StudyFolder, TrialOutcome
from natmix.experiments.studies.trial_runner import (
    PRUNED,
    AbstractTrialRunner,
    Trial,
    TrialTerms,
    parted,
)
from natmix.files.generations import exists
from natmix.interrupts import Interrupt
from natmix.kernels.compilation_cache import use_compilation_cache

MOST_DEATHS = 25
"""So often a trial's process may be killed after the same number of iterations before it has failed."""
PROGRAMS_KEPT = 20
"""Trials after which a process forgets its compiled programs: they hold memory."""

Report = Literal["done", "busy", "again", "interrupted"]
"""Of an attempt: the trial has an outcome; another process runs it; it failed and may be tried again; it
stopped because this process was asked to."""

RunnerMaker = Callable[[TrialTerms, Interrupt], AbstractTrialRunner]


@functools.lru_cache(maxsize=4)
def _study_in(path: str, changed: int) -> Study:
    return StudyFolder(path).study()


def study_in(folder: StudyFolder) -> Study:
    """The study of a folder, read once while it does not change."""
    return _study_in(str(folder.path), (folder.path / "study.json").stat().st_mtime_ns)


def planned_trial(folder: StudyFolder, study: Study, number: int) -> tuple[Trial, list[float | None]]:
    """A trial and its bars, from the plan."""
    cell_at, position, seed_at = study.positions(number)
    cell = study.cells[cell_at]
    batch, within = divmod(position, study.search.batch)
    planned = folder.read_batch(cell, batch)
    trial = Trial(number, cell.problem, cell.codename, planned.settings[within], study.seeds[seed_at])
    return trial, planned.bars[within]


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
    folder = StudyFolder(path)
    if folder.outcome(number) is not None:
        return "done"
    with folder.claim(number) as mine:
        if not mine:
            return "busy"
        if folder.outcome(number) is not None:
            return "done"
        return _Attempt(folder, number, interrupt or Interrupt(), runner).run()


def load_problem(study: Study, trial: Trial) -> Problem:
    """The problem of a trial."""
    problem = study.problems[trial.problem]
    options = {**problem.options, **parted(trial.settings).problem_options}
    if problem.source is not None:
        return load_model(problem.source, problem.name, options, study.dtype)
    return problems.load(problem.name, seed=trial.seed, dtype=jnp.dtype(study.dtype), **options)


def terms_of(folder: StudyFolder, study: Study, problem: str) -> TrialTerms:
    """What all trials of a study on one problem share."""
    return TrialTerms(
        limits=study.problems[problem].limits,
        load=functools.partial(load_problem, study),
        folder=folder.run_folder,
        preset=study.preset,
        covariance=study.covariance,
        dtype=study.dtype,
        checkpoint_seconds=study.checkpoint_seconds,
    )


_attempts_here = 0


def prepare_process(dtype: str) -> None:
    """Set up JAX in a process that runs trials."""
    global _attempts_here
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    use_compilation_cache()
    _attempts_here += 1
    if _attempts_here % PROGRAMS_KEPT == 0:
        jax.clear_caches()


class _Attempt:
    """One attempt at a trial that this process has claimed."""

    def __init__(self, folder: StudyFolder, number: int, interrupt: Interrupt, runner: RunnerMaker) -> None:
        self._folder, self._number, self._interrupt = folder, number, interrupt
        self._study = study_in(folder)
        self._make_runner = runner
        self._before = folder.attempts(number)
        self._trial, self._bars = planned_trial(folder, self._study, number)
        self._files = SeedFiles(folder.run_folder(number), self._trial.seed)

    def run(self) -> Report:
        prepare_process(self._study.dtype)
        errors = [attempt.reason for attempt in self._before if attempt.event == "error"]
        if len(errors) > self._study.retries:
            return self._fail(errors[-1])
        iterations = self._iterations_before()
        dead = deaths(self._before, iterations)
        if dead >= MOST_DEATHS:
            return self._fail(
                f"its process was killed {dead} times after {iterations} iterations, perhaps because it took "
                "too much memory"
            )
        self._note("begin", iterations)
        run = self._folder.run_folder(self._number)
        if not (run / CONFIG).is_file():  # a process was killed while it made the folder
            shutil.rmtree(run, ignore_errors=True)
        terms = terms_of(self._folder, self._study, self._trial.problem)
        runner = self._make_runner(terms, self._interrupt)
        try:
            runner.submit(self._trial)
        except (
            ValueError,
            ImportError,
            FileNotFoundError,
        ) as error:  # the next time, too
            return self._fail(str(error))
        except Exception as error:
            return self._failed(f"{type(error).__name__}: {error}")
        try:
            failure = self._go_on(runner, BudgetCurve(self._study.pruning.rungs, terms.limits))
        except Exception as error:
            return self._failed(f"{type(error).__name__}: {error}")
        finally:
            runner.close()
        if failure is None:
            self._note("interrupted", 0)
            return "interrupted"
        return self._failed(failure) if failure else self._finish()

    def _go_on(self, runner: AbstractTrialRunner, curve: BudgetCurve) -> str | None:
        """Until it has ended: why it failed, or an empty text; None if it was interrupted."""
        seen = -1
        while not self._interrupt.asked:
            for progress in runner.advance():
                if progress.finished:
                    return progress.failure
                if progress.iterations != seen and not math.isnan(progress.elbo):
                    seen = progress.iterations
                    add_progress(curve, progress)
                    if curve.is_pruned(self._bars):
                        runner.stop(self._number)
        return None

    def _finish(self) -> Report:
        final = read_final(self._files.final, self._trial.seed)
        assert final is not None
        limits = self._study.problems[self._trial.problem].limits
        curve = BudgetCurve(self._study.pruning.rungs, limits)
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
        """It may be tried again, so often."""
        errors = sum(attempt.event == "error" for attempt in self._before)
        self._note("error", 0, reason)
        return self._fail(reason) if errors >= self._study.retries else "again"

    def _fail(self, reason: str) -> Report:
        final = read_final(self._files.final, self._trial.seed) or {}
        self._write(final, [], "failed", None, reason)
        return "done"

    def _iterations_before(self) -> int:
        path = self._files.checkpoint
        return load_records(path).progress["iterations"] if exists(path) else 0

    def _note(self, event: str, iterations: int, reason: str = "") -> None:
        process = f"{socket.gethostname()} {os.getpid()}"
        self._folder.note(self._number, Attempt(event, iterations, reason, process))


def note_crash(folder: StudyFolder, number: int, reason: str) -> None:
    """Count a crash of a trial's process as a failure, unless another process runs the trial by now."""
    with folder.claim(number) as mine:
        if mine and folder.outcome(number) is None:
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
