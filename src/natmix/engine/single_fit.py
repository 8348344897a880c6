"""One fit: a run until it has converged, its best mixture, and the ELBO of that mixture."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from natmix.array_types import PRNGKey
from natmix.diagnostics.budget import EVALUATIONS_PER_RUN, MIN_RUNS
from natmix.diagnostics.diagnosis import ENDED_EARLY
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import NO_ELBO, Elbo, elbo_of, evaluated_draws, no_elbo
from natmix.diagnostics.evidence import gather_evidence
from natmix.diagnostics.verification import Verification
from natmix.engine.accuracy import ACCURATE, MIN_SAMPLES, AccuracyRule, confirmed
from natmix.engine.chunk_runner import ChunkRunner
from natmix.engine.clock import Clock
from natmix.engine.convergence import CHECK_EVERY, BestRecorder, StoppingRule, objective
from natmix.engine.final_elbo import FinalElbo
from natmix.engine.fit_checkpoint import FitCheckpoints, FitRecords, StoredCounters, StoredFit
from natmix.engine.fit_loop import FitLoop, evaluations_given
from natmix.engine.limits import Limits, is_number
from natmix.engine.progress_line import ProgressLine
from natmix.engine.recorder import Recorder
from natmix.engine.sample_levels import FLAT, with_more_samples
from natmix.engine.single_run import SingleRun
from natmix.engine.snapshot import CallbackRecorder, FitSnapshot
from natmix.engine.trajectory import TrajectoryRecorder
from natmix.engine.verifier import (
    MIDWAY,
    MIDWAY_SAMPLES,
    Addition,
    MidwayCheck,
    Verifier,
)
from natmix.gmmvi import GMMVI
from natmix.interrupts import Interrupt
from natmix.mixture import Mixture
from natmix.mixture.negligible import without_negligible
from natmix.modules.state import State
from natmix.targets import AbstractTarget, JaxTarget, TargetError

_REPAIRABLE = ("converged", ACCURATE, MIDWAY)
"""Why a run may have ended that can go on with what a verification finds."""
_UNVERIFIED = {"failed": "the target failed in the fit", "interrupted": "the fit was interrupted"}
_ADVICE = "Start where the density is positive (init_mean, init_scale or box)"


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """The options of `natmix.fit` about when it ends and what it shows meanwhile.

    Attributes:
        limits: of iterations, evaluations and seconds.
        tolerance: of the stopping rule.
        elbo: how many samples the final ELBO has.
        progress: whether to show a live line; only on a terminal and in a notebook if None.
        callback: called after every chunk of iterations; ends the fit by returning True.
        verify: whether to search outside of the mixture's samples, and to go on with what is found.
        accuracy: KL(q || p), in nats, at which it ends; None if only the stopping rule and limits end it.
    """

    limits: Limits
    tolerance: float
    elbo: FinalElbo
    progress: bool | None = None
    callback: Callable[[FitSnapshot], Any] | None = None
    verify: bool = True
    accuracy: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.verify, bool):
            raise ValueError(f"verify must be True or False, got {self.verify!r}.")
        if not (is_number(self.tolerance) and self.tolerance >= 0):
            raise ValueError(f"tolerance must be a number and not negative, got {self.tolerance!r}.")
        if self.accuracy is not None and not (is_number(self.accuracy) and self.accuracy >= 0):
            raise ValueError(f"accuracy must be a number of nats, not negative, got {self.accuracy!r}.")
        if self.callback is not None and not callable(self.callback):
            raise ValueError(
                f"callback must be a function of a snapshot, got {type(self.callback).__name__}."
            )

    def settings(self) -> dict[str, Any]:
        """What is needed to run it again, as plain Python."""
        limits = self.limits
        return {
            "max_iterations": limits.max_iterations,
            "max_evaluations": limits.max_evaluations,
            "max_seconds": limits.max_seconds,
            "elbo_samples": self.elbo.samples,
            "tolerance": self.tolerance,
            "accuracy": self.accuracy,
            "verify": self.verify,
        }


@dataclasses.dataclass(frozen=True)
class FitOutcome:
    """What a fit found.

    Attributes:
        mixture: the last one, or the best one; without components of negligible weight.
        left_out: components of negligible weight.
        elbo: of the mixture.
        draws: the samples that the ELBO was estimated from; None if it was interrupted.
        trajectory: every field of `natmix.Info`, ``objective`` and ``seconds`` over the iterations.
        iterations: how many.
        evaluations: of the target by these iterations.
        stopped: why it ended.
        compile_seconds: spent compiling.
        running_seconds: spent in iterations.
        elbo_seconds: spent on the ELBO.
        notes: what the user should know.
        failure: the error of the target that ended it, if one did.
        verification: what the searches outside of the mixture's samples found; None if there were none.
        verification_seconds: that these took.
        refuted_evaluations: of samples that did not confirm the mixture's accuracy.
    """

    mixture: Mixture
    left_out: int
    elbo: Elbo
    draws: EvaluatedDraws | None
    trajectory: dict[str, np.ndarray]
    iterations: int
    evaluations: int
    stopped: str
    compile_seconds: float
    running_seconds: float
    elbo_seconds: float
    notes: tuple[str, ...]
    failure: TargetError | None
    verification: Verification | None = None
    verification_seconds: float = 0.0
    refuted_evaluations: int = 0

    @property
    def ended(self) -> bool:
        """Whether the fit ended by itself or by a limit; otherwise it goes on from its checkpoint."""
        return self.stopped not in ("interrupted", "failed", "callback")


class SingleFit:
    """Runs one fit.

    The trajectory, the best mixture and the stopping rule are recorders of its run; so are the progress line
    and the user's callback, which comes last: if it raises, the others have seen the chunk.
    """

    def __init__(
        self,
        algorithm: GMMVI,
        target: AbstractTarget,
        state: State,
        components: int,
        options: FitOptions,
        first_evaluations: int,
        clock: Clock,
        more_samples: Sequence[GMMVI] = (),
        checkpoints: FitCheckpoints | None = None,
    ) -> None:
        """Prepare the fit.

        Args:
            algorithm: the algorithm.
            target: what to approximate.
            state: the initial state.
            components: how many it has.
            options: when to end.
            first_evaluations: of the target before the first iteration.
            clock: started when the user called.
            more_samples: the algorithms to go on with, one each time that the ELBO stops rising.
            checkpoints: where to write them, if anywhere.
        """
        self._algorithm, self._target, self._options = algorithm, target, options
        self._more_samples = list(more_samples)
        most = algorithm.component_adaptation.most_components(components)
        self._runner = ChunkRunner(algorithm, target, most, shrink_every=CHECK_EVERY)
        self._trajectory = TrajectoryRecorder()
        self._best = BestRecorder(algorithm, options.tolerance)
        self._line = ProgressLine(algorithm.codename, options.progress)
        random, adds = _is_random(target), algorithm.component_adaptation.adds_components
        # What is left of a given number of evaluations is spent, unless it cannot help or be judged.
        judged = options.accuracy is not None and not random and algorithm.temperature == 1
        patient = options.limits.max_evaluations is None or not adds or not judged
        self._rule = StoppingRule(
            algorithm, components, options.tolerance, FLAT if more_samples else None, bool(patient)
        )
        self._accuracy = AccuracyRule(options.accuracy or 0.0)
        self._refuted = 0
        self._pauses = self._increases = 0
        self._compiled_before = self._ran_before = 0.0
        recorders: list[Recorder] = [self._trajectory, self._rule, self._best, self._line]
        if judged:
            recorders.insert(1, self._accuracy)
        self._callback = None
        if options.callback is not None:
            self._callback = CallbackRecorder(options.callback, first_evaluations)
            recorders.append(self._callback)
        self._first_evaluations = first_evaluations
        self._verifier: Verifier | None = None
        self._midway = MidwayCheck()
        self._verification_seconds = 0.0
        aside = options.elbo.reserve + first_evaluations
        if options.verify:
            region = jax.device_get(state.prior)
            allowed = options.limits.max_evaluations
            self._verifier = Verifier(algorithm, target, region, allowed, options.accuracy is not None)
            if adds and not random:
                recorders.append(self._midway)
        self._checkpoints = None if checkpoints is None else checkpoints.recorder(self._records)
        if checkpoints is not None and self._checkpoints is not None:
            recorders.append(self._checkpoints)
            about = (algorithm.codename, target.dim, options.accuracy)
            recorders.append(checkpoints.progress.follow(*about, self._trajectory, first_evaluations))
        self._run = SingleRun(state, options.limits, clock, recorders, aside, _ADVICE)
        if self._verifier is not None:
            self._run.seconds_aside = self._verifier.reserved_seconds(options.limits)
        self._set_aside()
        self._interrupt = Interrupt()
        self._check_budget(self._run.aside)

    def _records(self, run: SingleRun) -> FitRecords:
        """What a checkpoint holds beside the state."""
        best, mixture = self._best.stored()
        trajectory = self._trajectory.arrays()
        # Those of a call that was broken off will be made again.
        evaluations = int(trajectory["evaluations"].sum(dtype=np.int64)) if trajectory else 0
        numbers = StoredFit(
            progress=StoredCounters(**(run.progress() | {"evaluations": evaluations})),  # type: ignore[typeddict-item]
            stopped=run.stopped,
            pauses=self._pauses,
            increases=self._increases,
            refuted=self._refuted,
            compiling=self._compiled_before + self._runner.compile_seconds,
            running=self._ran_before + run.running_seconds,
            verifying=self._verification_seconds,
            rule=self._rule.stored(),
            accuracy=self._accuracy.stored(),
            best=best,
            midway=self._midway.stored(),
            verifier=None if self._verifier is None else self._verifier.stored(),
        )
        return FitRecords(numbers, mixture, trajectory)

    def go_on_from(self, state: State, records: FitRecords) -> None:
        """Go on from a checkpoint instead of the initial state."""
        numbers, run = records.numbers, self._run
        for _ in range(numbers["increases"]):
            self._next_algorithm()
        run.state = state
        run.restore(dict(numbers["progress"]))
        run.clock.go_on_from(run.seconds)
        self._trajectory.restore(records.trajectory)
        judged = run.iterations - run.iterations % CHECK_EVERY
        since = {k: v[judged:] for k, v in records.trajectory.items()} if run.iterations > judged else {}
        self._rule.restore(numbers["rule"], since)
        self._accuracy.restore(numbers["accuracy"], since)
        self._best.restore(numbers["best"], records.best, since)
        self._midway.restore(numbers["midway"])
        if self._verifier is not None and numbers["verifier"] is not None:
            self._verifier.restore(numbers["verifier"])
        self._pauses, self._refuted = numbers["pauses"], numbers["refuted"]
        self._compiled_before, self._ran_before = numbers["compiling"], numbers["running"]
        self._verification_seconds = numbers["verifying"]
        self._set_aside()
        # A limit may be another one now, and what the user stopped goes on.
        run.stopped = _pause(numbers["stopped"]) or run.limit_reached(run.seconds)

    def run(self, key: PRNGKey) -> FitOutcome:
        """Run until the end or an interrupt; ``key`` is for the samples of the ELBO."""
        with self._interrupt.watching(), self._line:
            loop = FitLoop(self._runner, [self._run], self._interrupt, (CHECK_EVERY,))
            loop.run()
            while True:
                if self._interrupt.asked and self._checkpoints is not None and self._has_state:
                    self._checkpoints.save(self._run)
                if self._callback is not None and self._callback.asked:
                    self._run.stopped = "callback"
                attempt, self._pauses = self._pauses, self._pauses + 1
                failure = loop.failure or self._run.failure
                if failure is not None:
                    return self._outcome("failed", failure=failure)
                stopped = "interrupted" if self._interrupt.asked else self._run.stopped
                assert stopped is not None
                self._interrupt.forget()
                if stopped == FLAT:
                    loop.resume(self._run, self._raised())
                    continue
                if stopped == MIDWAY and self._search_budget() < MIN_RUNS * EVALUATIONS_PER_RUN:
                    loop.resume(self._run)
                    continue
                key_elbo = jax.random.fold_in(key, attempt) if attempt else key
                if stopped == ACCURATE and not self._confirmable():
                    loop.resume(self._run)
                    continue
                outcome = self._with_elbo("converged" if stopped == ACCURATE else stopped, key_elbo)
                if stopped == ACCURATE and outcome.draws is not None and not self._confirmed(outcome):
                    loop.resume(self._run)
                    continue
                if outcome.draws is None or outcome.stopped == "interrupted":
                    return outcome
                if self._verifier is None:
                    return self._all_spent(outcome, jax.random.fold_in(key, 2000))
                verified = self._verified(outcome, jax.random.fold_in(key, 1000 + attempt))
                if verified is not None:
                    return self._all_spent(verified, jax.random.fold_in(key, 2000))
                loop.resume(self._run)

    def _raised(self) -> ChunkRunner:
        """The runner of the algorithm with more samples, for the state that is changed for it."""
        self._compiled_before += self._runner.compile_seconds
        before = self._next_algorithm()
        self._run.state = with_more_samples(before, self._runner, self._run.state)
        self._rule.restart(int(self._run.state.births))
        self._accuracy.restart()
        self._best.restart()
        return self._runner

    @property
    def _has_state(self) -> bool:
        """Whether the state was not lost in a chunk that was broken off."""
        return not any(a.is_deleted() for a in jax.tree.leaves(self._run.state))

    def _next_algorithm(self) -> ChunkRunner:
        """Go on with the next algorithm; returns the runner of the one before."""
        before, after = self._runner, self._more_samples.pop(0)
        self._runner = ChunkRunner(after, before.target, before.most_components, before.shrink_every)
        self._rule.when_flat = FLAT if self._more_samples else None
        self._increases += 1
        return before

    def _confirmable(self) -> bool:
        """Whether there are evaluations for fresh samples now, and for the final ELBO later."""
        n, left = self._elbo_samples("converged"), self._run.budget()
        enough = n >= MIN_SAMPLES and (left is None or left >= n)
        if not enough:
            self._accuracy.refuted(self._run.evaluations, n, np.nan)
        return enough

    def _confirmed(self, outcome: FitOutcome) -> bool:
        """Whether the samples of the final ELBO confirm that the mixture is accurate."""
        assert outcome.draws is not None
        assert self._options.accuracy is not None
        found = confirmed(outcome.mixture, outcome.draws, self._options.accuracy)
        most = self._options.limits.max_evaluations
        if found or (found.close and not self._accuracy.patient(self._run.evaluations, most)):
            return True
        n = len(outcome.draws)
        self._refuted += n
        self._accuracy.refuted(self._run.evaluations, n, gather_evidence(outcome.draws).gap.value)
        self._set_aside()
        return False

    def _verified(self, outcome: FitOutcome, key: PRNGKey) -> FitOutcome | None:
        """The outcome with what a search outside of its samples found; None if the run is to go on."""
        verifier, run, draws = self._verifier, self._run, outcome.draws
        assert verifier is not None
        assert draws is not None
        before = time.perf_counter()
        midway = outcome.stopped == MIDWAY
        try:
            addition = verifier.search(run, outcome.mixture, draws, key, self._search_budget())
        except KeyboardInterrupt:
            self._interrupt.asked = True
            unverified = verifier.without_search(_UNVERIFIED["interrupted"])
            return dataclasses.replace(outcome, stopped="interrupted", verification=unverified)
        self._verification_seconds += time.perf_counter() - before
        reason = self._repair(outcome.stopped, addition)
        if midway or (addition is not None and not reason):
            verifier.spend(len(draws))
            self._set_aside()
            return None
        self._set_aside()
        return dataclasses.replace(
            outcome,
            verification=verifier.result(reason),
            verification_seconds=self._verification_seconds,
        )

    def _repair(self, stopped: str, addition: Addition | None) -> str:
        """Add what was found to the run; why not, if the run cannot go on with it."""
        verifier = self._verifier
        assert verifier is not None
        if addition is None:
            return ""
        if stopped not in _REPAIRABLE:
            return f"the fit {ENDED_EARLY[stopped]}"
        reached = self._run.limit_reached(self._run.now())
        if reached is not None:
            return f"the fit {ENDED_EARLY[reached]}"
        if not verifier.may_repair:
            return f"{self._algorithm.codename} does not add components, or too many repairs were made"
        run = self._run
        changed = self._runner.with_components(run.state, addition.components, addition.kept, addition.prior)
        if changed is None:
            return "there is no room for more components (component_adaptation.max_components, or memory)"
        run.state = changed
        self._rule.restart(int(changed.births))
        self._accuracy.restart()
        verifier.repaired(run, addition)
        self._midway.again(run)
        return ""

    def _all_spent(self, outcome: FitOutcome, key: PRNGKey) -> FitOutcome:
        """The outcome with all of ``max_evaluations`` spent: samples of the final ELBO take what is left.

        Unless the user said how many samples that has.
        """
        most, draws = self._options.limits.max_evaluations, outcome.draws
        ended = outcome.stopped == "max_evaluations" and self._options.accuracy is not None
        if most is None or not ended or self._options.elbo.samples is not None:
            return outcome
        searched = 0 if outcome.verification is None else outcome.verification.evaluations
        assert draws is not None
        left = most - self._first_evaluations - self._run.evaluations - self._refuted - searched - len(draws)
        if left <= 0:
            return outcome
        try:
            joined = draws.joined(evaluated_draws(outcome.mixture, self._target, key, left))
        except KeyboardInterrupt as error:
            spent = self._refuted + evaluations_given(error)
            return dataclasses.replace(outcome, stopped="interrupted", refuted_evaluations=spent)
        except TargetError as error:
            spent = self._refuted + error.evaluations
            return dataclasses.replace(outcome, stopped="failed", failure=error, refuted_evaluations=spent)
        return dataclasses.replace(outcome, draws=joined, elbo=elbo_of(joined))

    def _search_budget(self) -> int:
        """Evaluations for a search; those of the samples before it are its own if the run goes on."""
        assert self._verifier is not None
        budget = self._verifier.budget(self._run, self._first_evaluations + self._run.evaluations)
        stopped = self._run.stopped
        if stopped not in _REPAIRABLE:
            return budget
        return budget - min(self._elbo_samples(stopped), budget // 2)

    def _elbo_samples(self, stopped: str | None) -> int:
        # Without gradients a fit is short, and evaluations may be expensive.
        judged = self._options.accuracy is not None and self._target.has_gradient
        n = self._options.elbo.samples_after(
            self._run, self._target.inside_jax, stopped == "interrupted", judged
        )
        return min(n, MIDWAY_SAMPLES) if stopped == MIDWAY else n

    def _set_aside(self) -> None:
        """Keep evaluations for the final ELBO and the verification."""
        aside = self._options.elbo.reserve + self._first_evaluations + self._refuted
        if self._verifier is not None:
            aside += self._verifier.reserve + self._verifier.evaluations
        self._run.aside = aside

    def _check_budget(self, aside: int) -> None:
        budget = self._run.budget()
        if budget is None:
            return
        needed = int(self._algorithm.next_evaluations_at_most(self._run.state))
        if needed > budget:
            raise ValueError(
                f"max_evaluations={self._run.limits.max_evaluations} is not enough: an iteration needs "
                f"{needed}, and {aside} are spent on the start or set aside for the final ELBO; "
                "allow more, or lower sample_selector={'desired_samples': ...} or elbo_samples."
            )

    def _with_elbo(self, stopped: str, key: PRNGKey) -> FitOutcome:
        outcome = self._outcome(stopped)
        n = self._elbo_samples(stopped)
        before = time.perf_counter()
        try:
            draws = evaluated_draws(outcome.mixture, self._target, key, n) if n else None
            elbo = NO_ELBO if draws is None else elbo_of(draws)
        except KeyboardInterrupt as error:
            draws, elbo, self._interrupt.asked = None, no_elbo(evaluations_given(error)), True
        except TargetError as error:
            return dataclasses.replace(
                outcome, stopped="failed", elbo=no_elbo(error.evaluations), failure=error
            )
        return dataclasses.replace(
            outcome,
            stopped="interrupted" if self._interrupt.asked else stopped,
            elbo=elbo,
            draws=draws,
            elbo_seconds=time.perf_counter() - before,
        )

    def _outcome(self, stopped: str, failure: TargetError | None = None) -> FitOutcome:
        why = _UNVERIFIED.get(stopped, "no sample of the mixture was evaluated")
        chosen, note = self._best.choose(self._run)
        notes = [] if note is None else [note]
        if self._run.stopped == "converged" and self._options.accuracy is not None:
            notes.append(
                f"KL(q || p) did not get down to {self._options.accuracy:g} nats (accuracy), but the ELBO no "
                "longer rises beyond its noise, and new components gain no weight. With a limit "
                "(max_evaluations) the fit goes on until that is spent."
            )
        mixture, left_out = without_negligible(chosen)
        trajectory = self._trajectory.arrays()
        if trajectory:
            seconds = trajectory.pop("seconds")
            values = objective(trajectory, float(self._algorithm.temperature))
            trajectory |= {"objective": values, "seconds": seconds}
        return FitOutcome(
            mixture=mixture,
            left_out=left_out,
            elbo=NO_ELBO,
            draws=None,
            trajectory=trajectory,
            iterations=self._run.iterations,
            evaluations=self._run.evaluations,
            stopped=stopped,
            compile_seconds=self._compiled_before + self._runner.compile_seconds,
            running_seconds=self._ran_before + self._run.running_seconds,
            elbo_seconds=0.0,
            notes=tuple(notes),
            failure=failure,
            verification=None if self._verifier is None else self._verifier.without_search(why),
            verification_seconds=self._verification_seconds,
            refuted_evaluations=self._refuted,
        )


def _pause(stopped: str | None) -> str | None:
    """Why a run that is resumed has paused, if it goes on with what follows the pause."""
    return stopped if stopped in (*_REPAIRABLE, FLAT) else None


def _is_random(target: AbstractTarget) -> bool:
    return isinstance(target, JaxTarget) and target.stochastic
