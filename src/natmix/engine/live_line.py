"""A line that is updated in place on a terminal, and printed now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text


class LiveLine:
    """A context in which `say` shows a line on the standard error stream.

    Args:
        first: what to show before anything is known.
        show: whether to show anything; only on a terminal if None.
        quiet_seconds: between two lines where they are printed.
    """

    def __init__(self, first: Text, show: bool | None, quiet_seconds: float) -> None:
        self.shown = sys.stderr.isatty() if show is None else show
        self._console = Console(stderr=True)
        self._first = first
        self._quiet_seconds = quiet_seconds
        self._live: Live | None = None
        self._printed = float("-inf")

    def __enter__(self) -> Self:
        if self.shown and self._console.is_terminal:
            self._live = Live(self._first, console=self._console, refresh_per_second=8)
            self._live.start()
        elif self.shown:
            self._console.print(self._first)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: Text, *, at_once: bool = False) -> None:
        """Show a line; where lines are printed, only after ``quiet_seconds`` or if ``at_once``."""
        now = time.perf_counter()
        if self._live is not None:
            self._live.update(line)
        elif self.shown and (at_once or now - self._printed >= self._quiet_seconds):
            self._printed = now
            self._console.print(line, soft_wrap=True)
