"""Trials one at a time, each as ``natmix run`` would run it."""

import math

from natmix.engine.single_run import DivergedError
from natmix.experiments.runs.directory import SeedFiles
from natmix.experiments.runs.rows import read_final
from natmix.experiments.runs.stepwise import StepwiseSeed
from natmix.experiments.studies.budget_curve import PRUNED
from natmix.experiments.studies.divergence import DivergenceGuard
from natmix.experiments.studies.trial_runner import (
    AbstractTrialRunner,
    Trial,
    TrialProgress,
    TrialTerms,
)
from natmix.interrupts import Interrupt

STEP_SECONDS = 0.5
"""About how long `SingleTrials.advance` takes."""


class SingleTrials(AbstractTrialRunner):
    """Holds one trial."""

    def __init__(self, terms: TrialTerms, interrupt: Interrupt | None = None) -> None:
        self._terms, self._interrupt = terms, interrupt or Interrupt()
        self._trial: Trial | None = None
        self._seed: StepwiseSeed | None = None

    @property
    def free(self) -> int:
        return int(self._trial is None)

    def submit(self, trial: Trial) -> None:
        if self._trial is not None:
            raise ValueError("One trial at a time: advance until it has finished.")
        terms = self._terms
        problem = terms.load(trial)
        self._seed = StepwiseSeed(
            terms.configure(trial, problem),
            trial.seed,
            terms.folder(trial.number),
            problem,
            self._interrupt,
            terms.checkpoint_seconds,
            terms.times,
            (DivergenceGuard(),),
            terms.judge(trial),
        )
        self._trial = trial

    def advance(self) -> list[TrialProgress]:
        if self._seed is None:
            return []
        self._seed.advance(STEP_SECONDS)
        progress = self._progress()
        if progress.finished:
            self.close()
        return [progress]

    def stop(self, number: int) -> None:
        if self._seed is None or self._trial is None or self._trial.number != number:
            raise ValueError(f"Trial {number} is not running here.")
        self._seed.stop(PRUNED)

    def close(self) -> None:
        seed, self._seed, self._trial = self._seed, None, None
        if seed is not None:
            seed.close()

    def _progress(self) -> TrialProgress:
        assert self._trial is not None
        assert self._seed is not None
        trial, seed = self._trial, self._seed
        if seed.ended and seed.failure is None:
            final = read_final(SeedFiles(self._terms.folder(trial.number), trial.seed).final)
            assert final is not None
            return TrialProgress(
                trial,
                final["iterations"],
                final["evaluations"],
                final["seconds"],
                -final["neg_elbo"],
                True,
                "",
            )
        elbo = math.nan if seed.neg_elbo is None else -seed.neg_elbo
        run, failure = seed.run, "" if seed.failure is None else str(seed.failure)
        diverged = isinstance(seed.failure, DivergedError)
        return TrialProgress(
            trial, run.iterations, run.evaluations, run.seconds, elbo, seed.ended, failure, diverged
        )
