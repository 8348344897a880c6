"""The clock of a run."""

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Wall time, compilation included, without what is not the algorithm's: looks and checkpoints."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._paused = 0.0

    def read(self) -> float:
        """Seconds since the clock was made, less the pauses."""
        return time.perf_counter() - self._start - self._paused

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """What happens inside takes no time."""
        before = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - before
