"""A line that is updated in place on a terminal and in a notebook, and printed now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from natmix.text.notebook_line import NotebookLine, in_notebook

_NOTEBOOK_SECONDS = 0.25
"""Between two updates in a notebook."""


class LiveLine:
    """A context in which `say` shows a line on the standard error stream, or in a notebook.

    Args:
        first: what to show before anything is known.
        show: whether to show anything; only on a terminal and in a notebook if None.
        quiet_seconds: between two lines where they are printed.
    """

    def __init__(self, first: Text, show: bool | None, quiet_seconds: float) -> None:
        notebook = in_notebook()
        self.shown = (notebook or sys.stderr.isatty()) if show is None else show
        self._notebook = NotebookLine() if notebook and self.shown else None
        self._latest: Text | None = None
        self._console = Console(stderr=True)
        self._first = first
        self._quiet_seconds = quiet_seconds
        self._live: Live | None = None
        self._printed = float("-inf")

    def __enter__(self) -> Self:
        if self._notebook is not None:
            self._notebook.show(self._first)
        elif self.shown and self._console.is_terminal:
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
        if self._notebook is not None and self._latest is not None:
            self._notebook.show(self._latest)

    @property
    def stays(self) -> bool:
        """Whether the last line stays where it is, instead of being one of many that are printed."""
        return self._live is not None or self._notebook is not None

    def say(self, line: Text, *, at_once: bool = False) -> None:
        """Show a line; where lines are printed, only after ``quiet_seconds`` or if ``at_once``."""
        now = time.perf_counter()
        self._latest = line
        if self._notebook is not None:
            if at_once or now - self._printed >= _NOTEBOOK_SECONDS:
                self._printed = now
                self._notebook.show(line)
        elif self._live is not None:
            self._live.update(line)
        elif self.shown and (at_once or now - self._printed >= self._quiet_seconds):
            self._printed = now
            self._console.print(line, soft_wrap=True)
