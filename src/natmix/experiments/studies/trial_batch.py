"""Trials that share one compiled program, whose places others take without compiling again."""

import contextlib
import functools
import time
from typing import NamedTuple

from natmix.engine.convergence import CHECK_EVERY
from natmix.engine.single_run import DivergedError
from natmix.engine.stacking import obstacle
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.config import RunConfig
from natmix.experiments.runs.directory import ENVIRONMENT, SeedFiles, fingerprint, prepare, restore
from natmix.experiments.runs.elbo_evaluation import EvaluationTimes
from natmix.experiments.runs.environment import environment
from natmix.experiments.runs.execution import check_budget, holding, is_finished
from natmix.experiments.runs.rows import read_final
from natmix.experiments.runs.seed import Seed, StateForm
from natmix.experiments.runs.watcher import Silence
from natmix.experiments.studies.batch_form import BatchForm, affordable_slots, batch_form
from natmix.experiments.studies.budget_curve import PRUNED
from natmix.experiments.studies.divergence import DivergenceGuard
from natmix.experiments.studies.trial_loops import AbstractTrialLoop, TogetherLoop, TrialRun, TurnsLoop
from natmix.experiments.studies.trial_runner import (
    AbstractTrialRunner,
    Trial,
    TrialProgress,
    TrialTerms,
)
from natmix.experiments.studies.trial_structure import (
    LoadedProblems,
    TrialStructure,
    structure,
)
from natmix.files.saving import Saving
from natmix.files.seal import ENVIRONMENT as ENVIRONMENT_FORMAT
from natmix.files.sealed_json import write_sealed_json
from natmix.gmmvi import GMMVI
from natmix.targets import AbstractTarget

ADVANCE_SECONDS = 1.0
"""About how long `TrialBatch.advance` takes."""


class _Held(NamedTuple):
    """A trial that has not ended.

    Attributes:
        trial: which.
        seed: its run.
        algorithm: the masked one.
        resources: its lock.
        saving: what writes its files.
    """

    trial: Trial
    seed: Seed
    algorithm: GMMVI
    resources: contextlib.ExitStack
    saving: Saving

    def progress(self) -> TrialProgress:
        """How far it is."""
        run = self.seed.run
        value = self.seed.neg_elbo
        return TrialProgress(
            trial=self.trial,
            iterations=run.iterations,
            evaluations=run.evaluations,
            seconds=run.seconds,
            elbo=float("nan") if value is None else -value,
            finished=run.stopped is not None,
            failure="" if run.failure is None else str(run.failure),
            diverged=isinstance(run.failure, DivergedError),
        )


class _First(NamedTuple):
    """The first trial of a batch, and what others must agree with."""

    trial: Trial
    structure: TrialStructure
    target: AbstractTarget


class TrialBatch(AbstractTrialRunner):
    """Runs trials of one structure (`natmix.experiments.studies.trial_structure`) by one compiled program.

    On an accelerator they advance at once, by `jax.vmap`; on a CPU in turns, where the structure may differ
    (`natmix.experiments.studies.batch_form`). A trial gives the run that it gives alone, but for rounding.
    Random numbers depend on its seed, the iteration and the component.
    """

    def __init__(
        self,
        terms: TrialTerms,
        slots: int,
        *,
        evaluate_every: int | None = None,
        form: BatchForm | None = None,
    ) -> None:
        """An empty batch.

        Args:
            terms: of the study.
            slots: trials at once; where they advance at once, fewer if there is no memory for them.
            evaluate_every: iterations between evaluations of the ELBO; if left out, the terms say when.
            form: how they run; by default what suits the platform.
        """
        if slots < 1:
            raise ValueError(f"A batch needs at least one slot, got {slots}.")
        if evaluate_every is not None and evaluate_every < 1:
            raise ValueError(f"evaluate_every must be at least one iteration, got {evaluate_every}.")
        self._terms, self._slots = terms, slots
        self._times = terms.times if evaluate_every is None else EvaluationTimes(evaluate_every)
        self._form = form or batch_form(terms.limits)
        self._problems = LoadedProblems(terms)
        self._first: _First | None = None
        self._loop = self._new_loop()
        self._waiting: dict[int, _Held] = {}
        self._running: dict[int, _Held] = {}
        self._reports: list[TrialProgress] = []

    def _new_loop(self) -> AbstractTrialLoop:
        ends: tuple[int, ...] = () if self._times is None else (self._times.every,)
        ends += (CHECK_EVERY,) if self._terms.limits.until_converged else ()
        return TogetherLoop(self._slots, ends) if self._form.together else TurnsLoop(ends)

    @property
    def free(self) -> int:
        return self._slots - len(self._waiting) - len(self._running)

    def fits(self, trial: Trial) -> bool:
        """Whether the trial has the problem and, where that matters, the structure of the earlier ones."""
        if self._first is None:
            return True
        if trial.problem != self._first.trial.problem:
            return False
        if not self._form.together:
            return True
        problem = self._problems(trial)
        algorithm = self._form.algorithm(self._terms.configure(trial, problem))
        return self._obstacle(trial, algorithm, problem) is None

    def _obstacle(self, trial: Trial, algorithm: GMMVI, problem: Problem) -> str | None:
        """Why a trial cannot advance with the first one."""
        assert self._first is not None
        if structure(trial, algorithm) != self._first.structure:
            return "it has another structure: another problem, codename or static hyperparameter"
        return obstacle([self._first.target, problem.target])

    def submit(self, trial: Trial) -> None:
        if not self.free:
            raise ValueError(f"All {self._slots} slots of the batch are taken; advance it first.")
        if trial.number in self._waiting or trial.number in self._running:
            raise ValueError(f"Trial {trial.number} is running already.")
        problem = self._problems(trial)
        config = self._terms.configure(trial, problem)
        check_budget(config)
        algorithm = self._form.algorithm(config)
        if self._first is None:
            self._begin_with(trial, config, algorithm, problem)
        elif self._form.together and (reason := self._obstacle(trial, algorithm, problem)) is not None:
            raise ValueError(
                f"Trial {trial.number} cannot join the batch: {reason}; give it to a batch of its own "
                "(`fits` tells)."
            )
        folder = self._terms.folder(trial.number)
        joint, where = prepare(folder, config.to_json(), [trial.seed]), environment()
        run = fingerprint(joint)
        if is_finished(folder, trial.seed, config.limits, run):
            self._reports.append(_finished(trial, SeedFiles(folder, trial.seed), run))
            return
        resources = contextlib.ExitStack()
        resources.enter_context(holding(folder, [trial.seed]))
        write_sealed_json(folder / ENVIRONMENT, ENVIRONMENT_FORMAT, where)
        saving = Saving(folder, functools.partial(restore, folder, joint, where))
        seed = self._seed(trial, problem, config, algorithm, saving)
        self._waiting[trial.number] = _Held(trial, seed, algorithm, resources, saving)

    def _begin_with(self, trial: Trial, config: RunConfig, algorithm: GMMVI, problem: Problem) -> None:
        """The first trial decides what others must be like, and how many slots there is memory for."""
        self._first = _First(trial, structure(trial, algorithm), problem.target)
        if not self._form.together:
            return
        if problem.target.inside_jax:
            self._slots = affordable_slots(self._slots, config, algorithm, self._form)
        else:
            self._form = self._form._replace(together=False)
        self._loop = self._new_loop()

    def _seed(
        self, trial: Trial, problem: Problem, config: RunConfig, algorithm: GMMVI, saving: Saving
    ) -> Seed:
        slots = max(self._loop.capacity, self._form.first_slots(config))
        return Seed(
            trial.seed,
            problem,
            config,
            SeedFiles(self._terms.folder(trial.number), trial.seed),
            self._loop.clock(),
            Silence(),
            saving,
            self._terms.checkpoint_seconds,
            keep_checkpoint=False,
            form=StateForm(algorithm, slots),
            times=self._times,
            guards=(DivergenceGuard(),),
            judge=self._terms.judge(trial),
        )

    def advance(self) -> list[TrialProgress]:
        start = time.perf_counter()
        while self._waiting or self._running:
            self._join()
            self._loop.advance()
            ended = any(held.seed.run.stopped is not None for held in self._running.values())
            if ended or time.perf_counter() - start >= ADVANCE_SECONDS:
                break
        reports, self._reports = self._reports, []
        held = [*self._running.values(), *self._waiting.values()]
        reports += [each.progress() for each in held]
        for each in held:
            if each.seed.run.stopped is not None:
                self._release(each)
        return reports

    def stop(self, number: int) -> None:
        if number in self._waiting:
            self._join_one(number)
        if number not in self._running:
            raise ValueError(f"Trial {number} is not running in this batch.")
        held = self._running[number]
        if held.seed.run.stopped is None:
            self._loop.end(held.seed.run, PRUNED)

    def close(self) -> None:
        held = [*self._running.values(), *self._waiting.values()]
        for each in held:
            if each.seed.run.stopped is None:
                each.seed.checkpoint()
        self._loop = self._new_loop()
        for each in held:
            self._release(each)

    def _join(self) -> None:
        """Let those that wait begin, if it is a good moment."""
        if self._waiting and self._loop.can_join():
            for number in list(self._waiting):
                self._join_one(number)
            for held in self._running.values():
                held.seed.joined_by(len(self._running) if self._form.together else 1)

    def _join_one(self, number: int) -> None:
        held = self._running[number] = self._waiting.pop(number)
        run = held.seed.run
        most = held.algorithm.component_adaptation.most_components(run.components)
        self._loop.join(TrialRun(run, held.algorithm, held.seed.problem.target, most))

    def _release(self, held: _Held) -> None:
        self._running.pop(held.trial.number, None)
        self._waiting.pop(held.trial.number, None)
        try:
            held.saving.finish()
        finally:
            held.resources.close()


def _finished(trial: Trial, files: SeedFiles, run: str) -> TrialProgress:
    """The progress of a trial whose run directory is finished."""
    final = read_final(files.final, trial.seed, run)
    assert final is not None
    return TrialProgress(
        trial=trial,
        iterations=final["iterations"],
        evaluations=final["evaluations"],
        seconds=final["seconds"],
        elbo=-final["neg_elbo"],
        finished=True,
        failure="",
    )
