"""The loop: runs advance chunk by chunk until each has ended."""

from collections.abc import Callable, Sequence

from natmix.engine.runner import AbstractRunner, Chunk
from natmix.engine.single_run import DivergedError, SingleRun
from natmix.interrupts import Interrupt, Interrupted
from natmix.modules.state import State
from natmix.targets import TargetError
from natmix.targets.failures import FAILURES, as_target_error


class FitLoop:
    """Advances one run, or a batch of runs in step.

    A run ends by a limit, a recorder or an error of its own; an interrupt or an error of the runner ends
    the loop and leaves the others unfinished. The length of chunks depends on the clock, the results do not:
    chunks always end at the multiples of ``chunk_ends``, and whatever depends on the end of a chunk happens
    only there.

    Attributes:
        active: the runs that have not ended.
        failure: the error of the runner that ended the loop; the states may be lost.
        broken_off: whether an interrupt ended the loop within a chunk; the states may be lost.
    """

    def __init__(
        self,
        runner: AbstractRunner,
        runs: Sequence[SingleRun],
        interrupt: Interrupt,
        chunk_ends: Sequence[int],
        recorder_failures: tuple[type[Exception], ...] = (),
    ) -> None:
        """Prepare it.

        Args:
            runner: advances the states.
            runs: one, or as many as the runner advances at once.
            interrupt: ends the loop after the chunk in which it is asked for.
            chunk_ends: iterations; chunks end at the multiples of each.
            recorder_failures: errors of recorders that end their run alone; others leave the loop.
        """
        self._runs = list(runs)
        self.active = [run for run in runs if run.stopped is None]
        self.failure: TargetError | None = None
        self.broken_off = False
        self._runner, self._interrupt, self._chunk_ends = (
            runner,
            interrupt,
            (*chunk_ends, runner.shrink_every),
        )
        self._recorder_failures = recorder_failures

    def run(self, going_on: Callable[[Sequence[State]], bool] = lambda states: True) -> None:
        """Advance until all runs have ended or ``going_on(states)``, asked before every chunk, is False."""
        try:
            for run in self._runs:
                for recorder in run.recorders:
                    recorder.started(run)
            self._go_on(going_on)
        except KeyboardInterrupt as error:
            self._break_off(error)

    def resume(self, run: SingleRun, runner: AbstractRunner | None = None) -> None:
        """Go on with a run that has ended, and whose state and runner may have been changed since."""
        if runner is not None:
            self._runner = runner
        run.stopped, self.active = None, [run]
        try:
            self._go_on(lambda states: True)
        except KeyboardInterrupt as error:
            self._break_off(error)

    def _go_on(self, going_on: Callable[[Sequence[State]], bool]) -> None:
        while self.active and not self._interrupt.asked and self.failure is None:
            if not going_on([run.state for run in self.active]):
                return
            self.advance()

    def _break_off(self, error: KeyboardInterrupt) -> None:
        for run in self.active:
            run.evaluations += evaluations_given(error)
        self.broken_off = self._interrupt.asked = True

    def add(self, run: SingleRun) -> None:
        """One more run, whose state the runner has been given."""
        for recorder in run.recorders:
            recorder.started(run)
        if run.stopped is None:
            self.active.append(run)

    def end(self, run: SingleRun, reason: str) -> None:
        """End a run between two chunks."""
        run.stopped = reason
        self.active = [other for other in self.active if other is not run]
        for recorder in run.recorders:
            recorder.finished(run)

    def advance(self) -> None:
        """One chunk of all active runs."""
        runs, runner = self.active, self._runner
        before, compiled = _clocks(runs), runner.compile_seconds
        iterations = min(run.chunk_length(self._chunk_ends) for run in runs)
        try:
            chunks = runner.advance_batch(
                [run.state for run in runs], iterations, [run.budget() for run in runs]
            )
        except FAILURES as error:
            self.failure = as_target_error(error)
            for run in runs:
                run.evaluations += self.failure.evaluations
            return
        compiling, after = runner.compile_seconds - compiled, _clocks(runs)
        for run, chunk, began, ended in zip(runs, chunks, before, after, strict=True):
            self._take(run, chunk, began, ended, compiling)
        self.active = [run for run in runs if run.stopped is None]

    def _take(self, run: SingleRun, chunk: Chunk, began: float, ended: float, compiling: float) -> None:
        """Count and record a chunk of one run, and end the run if it was the last."""
        try:
            run.take(chunk, began, ended, compiling)
        except TargetError as error:
            run.evaluations += error.evaluations
            _fail(run, error)
            return
        try:
            _record(run, chunk)
        except self._recorder_failures as error:
            _fail(run, as_target_error(error))

    def fail_active(self) -> None:
        """End the active runs by the error of the runner."""
        assert self.failure is not None
        for run in self.active:
            _fail(run, self.failure)
        self.active = []


def _record(run: SingleRun, chunk: Chunk) -> None:
    if len(chunk):
        found = None
        for recorder in run.recorders:
            reason = recorder.chunk(run, chunk)
            if found is None and reason is not None:
                found = run.stopped = reason
    if run.stopped is not None:
        for recorder in run.recorders:
            recorder.finished(run)


def _fail(run: SingleRun, error: TargetError) -> None:
    run.stopped, run.failure = "failed", error
    if isinstance(error, DivergedError):  # so that the numbers do not depend on the length of the chunk
        run.iterations, run.evaluations = error.iterations, error.spent
    for recorder in run.recorders:
        recorder.failed(run)


def _clocks(runs: Sequence[SingleRun]) -> list[float]:
    """Their clocks at one moment, so that runs with the same time limit reach it together."""
    with runs[0].clock.pause():
        return [run.now() for run in runs]


def evaluations_given(error: KeyboardInterrupt) -> int:
    """Evaluations in the call that an interrupt broke off."""
    return error.evaluations if isinstance(error, Interrupted) else 0
