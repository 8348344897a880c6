"""The clock of a run."""

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Wall time since it was made, compilation included, without its pauses.

    It is paused for what is not part of the algorithm: evaluations of the ELBO and checkpoints.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._paused = 0.0
        self._stopped_at: float | None = None

    def read(self) -> float:
        """Seconds since the clock was made, less the pauses."""
        now = time.perf_counter() if self._stopped_at is None else self._stopped_at
        return now - self._start - self._paused

    def leave_out(self, seconds: float) -> None:
        """Not to count so many seconds of those since the clock was made."""
        self._paused += seconds

    def go_on_from(self, seconds: float) -> None:
        """Read as if so many seconds had passed."""
        self._paused += self.read() - seconds

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Time spent inside does not count; pauses may be nested."""
        if self._stopped_at is not None:
            yield
            return
        self._stopped_at = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - self._stopped_at
            self._stopped_at = None
