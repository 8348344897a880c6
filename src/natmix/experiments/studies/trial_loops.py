"""How the trials of a batch advance: all at once, or in turns."""

import abc
from typing import NamedTuple

from natmix.engine.chunk_runner import ChunkRunner
from natmix.engine.clock import Clock
from natmix.engine.fit_loop import FitLoop
from natmix.engine.single_run import SingleRun
from natmix.engine.slot_runner import SlotRunner
from natmix.gmmvi import GMMVI
from natmix.interrupts import Interrupt
from natmix.targets import AbstractTarget
from natmix.targets.failures import FAILURES


class TrialRun(NamedTuple):
    """What a loop needs of a trial.

    Attributes:
        run: its progress; its clock was made by the loop.
        algorithm: the masked one.
        target: of its problem.
        most_components: that it may get.
    """

    run: SingleRun
    algorithm: GMMVI
    target: AbstractTarget
    most_components: int


class AbstractTrialLoop(abc.ABC):
    """Advances the runs of trials that share a compiled program. Their clocks stand still meanwhile."""

    @property
    @abc.abstractmethod
    def capacity(self) -> int:
        """Slots for components that a new trial should have at least."""

    @abc.abstractmethod
    def clock(self) -> Clock:
        """A clock for one more run, which stands at its present reading until the run advances."""

    @abc.abstractmethod
    def can_join(self) -> bool:
        """Whether now is a good moment for one more run."""

    @abc.abstractmethod
    def join(self, trial: TrialRun) -> None:
        """One more run, from its present state."""

    @abc.abstractmethod
    def end(self, run: SingleRun, reason: str) -> None:
        """End a run early."""

    @abc.abstractmethod
    def advance(self) -> None:
        """One chunk of all runs, or of the one whose turn it is."""


class TogetherLoop(AbstractTrialLoop):
    """Advances all runs at once. They share a clock.

    Chunks end where the ELBO of any run is evaluated. A new run waits for such an end, so that later ends are
    common ones.
    """

    def __init__(self, slots: int, chunk_ends: tuple[int, ...]) -> None:
        self._slots, self._chunk_ends = slots, chunk_ends
        self._clock = Clock()
        self._reading = 0.0
        self._runner: SlotRunner | None = None
        self._loop: FitLoop | None = None
        self._places: dict[int, SingleRun] = {}

    @property
    def capacity(self) -> int:
        return 0 if self._runner is None else self._runner.capacity

    def clock(self) -> Clock:
        self._clock.go_on_from(self._reading)
        return self._clock

    def can_join(self) -> bool:
        active = [] if self._loop is None else self._loop.active
        at_end = [all(run.iterations % n == 0 for n in self._chunk_ends) for run in active]
        return not active or any(at_end)

    def join(self, trial: TrialRun) -> None:
        if self._runner is None or self._loop is None:
            self._runner = SlotRunner(self._slots, trial.algorithm, trial.target, trial.most_components)
            self._loop = FitLoop(self._runner, [], Interrupt(), self._chunk_ends, FAILURES)
        active = self._loop.active
        self._places = {p: run for p, run in self._places.items() if any(run is other for other in active)}
        place = next(p for p in range(self._slots) if p not in self._places)
        self._places[place] = trial.run
        # A chunk is as long as the slowest run wants it.
        trial.run.rate = max([trial.run.rate, *(run.rate for run in active)])
        self._runner.put(place, trial.algorithm, trial.target, trial.run.state, trial.most_components)
        self._loop.add(trial.run)

    def end(self, run: SingleRun, reason: str) -> None:
        assert self._loop is not None
        self._loop.end(run, reason)

    def advance(self) -> None:
        if self._loop is None or not self._loop.active:
            return
        self._clock.go_on_from(self._reading)
        self._loop.advance()
        self._reading = self._clock.read()
        if self._loop.failure is not None:  # the states may be lost
            self._loop.fail_active()
            self._runner = self._loop = None


class _Turn(NamedTuple):
    loop: FitLoop
    run: SingleRun


class TurnsLoop(AbstractTrialLoop):
    """Advances one run after another, a chunk each, by programs that they share; each has its own clock."""

    capacity = 0

    def __init__(self, chunk_ends: tuple[int, ...]) -> None:
        self._chunk_ends = chunk_ends
        self._turns: list[_Turn] = []

    def clock(self) -> Clock:
        return Clock()

    def can_join(self) -> bool:
        return True

    def join(self, trial: TrialRun) -> None:
        runner = ChunkRunner(trial.algorithm, trial.target, trial.most_components)
        loop = FitLoop(runner, [], Interrupt(), self._chunk_ends, FAILURES)
        loop.add(trial.run)
        trial.run.set_clock(trial.run.seconds)
        self._turns.append(_Turn(loop, trial.run))

    def end(self, run: SingleRun, reason: str) -> None:
        turn = next(turn for turn in self._turns if turn.run is run)
        self._turns.remove(turn)
        turn.loop.end(run, reason)

    def advance(self) -> None:
        if not self._turns:
            return
        turn = self._turns.pop(0)
        turn.run.set_clock(turn.run.seconds)
        turn.loop.advance()
        if turn.loop.failure is not None:
            turn.loop.fail_active()
        if turn.run.stopped is None:
            self._turns.append(turn)
