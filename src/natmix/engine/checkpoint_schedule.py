"""When a checkpoint is due: by the clock, and seldom enough to cost little."""

import time

CHECKPOINT_SECONDS = 60.0
"""Between two checkpoints."""
FIRST_CHECKPOINT_SECONDS = 10.0
"""The first one comes early, so that little is lost of a run that is killed soon."""
COST_SHARE = 20
"""A checkpoint that took s seconds is followed by 20 s without one."""


class CheckpointSchedule:
    """When to write checkpoints. What was not written is tried again after as long as what was.

    Args:
        seconds: between checkpoints; more if they take long, and at most 10 before the first.
        written: whether there is one already.
    """

    def __init__(self, seconds: float, written: bool) -> None:
        self._seconds, self._written = seconds, written
        self._last, self._cost = time.perf_counter(), 0.0

    def due(self) -> bool:
        """Whether it is time for one."""
        if not self._written:
            return self._since() >= min(FIRST_CHECKPOINT_SECONDS, self._seconds)
        return self._since() >= max(self._seconds, COST_SHARE * self._cost)

    def affordable(self) -> bool:
        """Whether one more would cost little, as where a run pauses."""
        return not self._written or self._since() >= COST_SHARE * self._cost

    def done(self, cost: float, written: bool) -> None:
        """Note that one took so many seconds, and whether it could be written."""
        self._written = written or self._written
        self._last, self._cost = time.perf_counter(), cost

    def _since(self) -> float:
        return time.perf_counter() - self._last
