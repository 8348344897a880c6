"""Compilation of a Stan program: shown while it runs, and timed."""

import contextlib
import contextvars
import logging
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from natmix.text.notebook_line import NotebookLine, in_notebook

_logger = logging.getLogger("natmix")
_shown: contextvars.ContextVar[bool | None] = contextvars.ContextVar("shown", default=None)


@contextlib.contextmanager
def showing(progress: bool | None) -> Iterator[None]:
    """Whether compilations inside are shown; only on a terminal and in a notebook if None."""
    token = _shown.set(progress)
    try:
        yield
    finally:
        _shown.reset(token)


class Compilation:
    """A context that shows on the standard error stream that a program is being compiled.

    Args:
        name: of the program.

    Attributes:
        seconds: it took, afterwards.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.seconds = 0.0
        self._start = 0.0
        self._live: Live | None = None

    def __enter__(self) -> "Compilation":
        self._start = time.perf_counter()
        _logger.info("Compiling the Stan program %s.", self._name)
        shown, console = _shown.get(), Console(stderr=True)
        if shown is not False and in_notebook():
            NotebookLine().show(self._line())
        elif (sys.stderr.isatty() if shown is None else shown) and console.is_terminal:
            self._live = Live(
                get_renderable=self._line, console=console, refresh_per_second=4, transient=True
            )
            self._live.start()
        elif shown:
            console.print(self._line(), soft_wrap=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._start
        if self._live is not None:
            self._live.stop()

    def _line(self) -> Text:
        seconds = time.perf_counter() - self._start
        return Text.assemble(
            ("Stan", "bold"), f"  compiling {self._name}, about a minute the first time  {seconds:.0f} s"
        )
