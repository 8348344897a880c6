"""One run as the loop drives it: its state, its progress, and its recorders."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from natmix.engine.clock import Clock
from natmix.engine.limits import Limits
from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.modules.state import State
from natmix.targets import TargetError

CHUNK_SECONDS = 0.25
"""About how long a chunk should take. The results do not depend on it."""

_STORED = ("iterations", "evaluations", "seconds", "compile_seconds", "components", "rate")


class DivergedError(TargetError):
    """A recorder found within the last chunk that the run has diverged.

    Attributes:
        iterations: of the run when it had diverged; what came after does not count.
        spent: evaluations of the run by then.
    """

    def __init__(self, message: str, iterations: int, spent: int) -> None:
        super().__init__(message)
        self.iterations, self.spent = iterations, spent


@dataclasses.dataclass
class SingleRun:
    """One run of the algorithm.

    Attributes:
        state: at the end of the last chunk.
        limits: when it ends.
        clock: shared with the other runs of a batch.
        recorders: what observes the run.
        aside: evaluations of ``limits.max_evaluations`` that are spent before the run or reserved.
        advice: what to do if the target is finite nowhere, for the error.
        seconds_aside: of the time limits, reserved for what follows the run.
        iterations: done so far.
        evaluations: of the target by these iterations.
        components: how many the mixture has.
        chunk_start: on this run's clock at the start of the last chunk.
        seconds: on this run's clock at the end of the last chunk.
        compile_seconds: of these, spent compiling.
        running_seconds: spent in chunks in this process, without compiling.
        rate: iterations per second in the last chunk.
        stopped: why it ended; None while it goes on.
        failure: the error that ended it, if one did.
        full_state: see `natmix.engine.runner.Chunk`.
    """

    state: State
    limits: Limits
    clock: Clock
    recorders: Sequence[Recorder] = ()
    aside: int = 0
    advice: str = "Start where the density is positive"
    seconds_aside: float = 0.0
    iterations: int = 0
    evaluations: int = 0
    components: int = 0
    chunk_start: float = 0.0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    running_seconds: float = 0.0
    rate: float = 0.0
    stopped: str | None = None
    failure: TargetError | None = None
    full_state: Callable[[], State] | None = None
    _offset: float = 0.0

    # Its clock ----------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds on this run's clock."""
        return self._offset + self.clock.read()

    def set_clock(self, seconds: float) -> None:
        """Let this run's clock continue from ``seconds``."""
        self._offset = seconds - self.clock.read()

    # What is stored with a checkpoint ------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        """The progress of the run, as plain numbers."""
        return {name: getattr(self, name) for name in _STORED}

    def restore(self, progress: dict[str, Any]) -> None:
        """Restore the progress; the clock is set by `set_clock`."""
        for name in _STORED:
            setattr(self, name, progress[name])

    # Chunks -------------------------------------------------------------------------------------

    def chunk_length(self, chunk_ends: Sequence[int]) -> int:
        """Iterations of the next chunk, which crosses no multiple of any number in ``chunk_ends``."""
        left = self.limits.seconds_left(self.now() + self.seconds_aside, self.compile_seconds)
        seconds = min(CHUNK_SECONDS, left)
        most = [max(1, int(self.rate * seconds)), *(n - self.iterations % n for n in chunk_ends)]
        if self.limits.max_iterations is not None:
            most.append(max(1, self.limits.max_iterations - self.iterations))
        return min(most)

    def budget(self) -> int | None:
        """Evaluations left for the algorithm."""
        limit = self.limits.max_evaluations
        return None if limit is None else limit - self.aside - self.evaluations

    def limit_reached(self, seconds: float) -> str | None:
        """The limit of iterations or time that ends the run at this reading of its clock, if any."""
        return self.limits.reached(self.iterations, seconds + self.seconds_aside, self.compile_seconds)

    def take(self, chunk: Chunk, before: float, now: float, compiling: float) -> None:
        """Count a chunk from ``before`` to ``now`` on this run's clock, ``compiling`` seconds among them."""
        self.state, self.full_state = chunk.state, chunk.full_state
        self.compile_seconds += compiling
        self.running_seconds += now - before - compiling
        n = len(chunk)
        if n and self.iterations == 0:
            check_first(chunk.infos, self.advice)
        self.chunk_start, self.seconds = before, now
        if n:
            self.iterations += n
            self.evaluations += int(chunk.infos["evaluations"].astype(np.int64).sum())
            self.components = int(chunk.infos["components"][-1])
            self.rate = n / max(now - before - compiling, 1e-9)
        self.stopped = self.limit_reached(self.seconds)
        if chunk.exhausted:
            self.stopped = "max_evaluations"


def check_first(infos: dict[str, np.ndarray], advice: str) -> None:
    """Raise, with advice, if the target was nowhere finite in the first iteration."""
    asked, zeros, invalid = (int(infos[k][0]) for k in ("evaluations", "zeros", "invalid"))
    if zeros + invalid == asked:
        raise TargetError(
            f"The target is not finite anywhere in the initial region: of {asked} samples {zeros} have log "
            f"density -inf and {invalid} NaN, +inf or a gradient that is not finite. {advice}, or check "
            "the function.",
            asked,
        )
