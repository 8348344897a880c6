"""A live line while simulations are fitted."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

_QUIET_SECONDS = 10.0


class SimulationProgress:
    """Shows a line that renews itself on a terminal, and a line now and then elsewhere."""

    def __init__(self, total: int, show: bool | None) -> None:
        self._total = total
        self._show = sys.stderr.isatty() if show is None else show
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._begun = self._printed = time.perf_counter()

    def __enter__(self) -> Self:
        if self._show and self._console.is_terminal:
            self._live = Live(self._line(0, 0), console=self._console, refresh_per_second=4)
            self._live.start()
        elif self._show:
            self._console.print(self._line(0, 0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def done(self, fits: int, failures: int) -> None:
        """Show how many are done."""
        now = time.perf_counter()
        if self._live is not None:
            self._live.update(self._line(fits, failures))
        elif self._show and (now - self._printed >= _QUIET_SECONDS or fits == self._total):
            self._printed = now
            self._console.print(self._line(fits, failures))

    def _line(self, fits: int, failures: int) -> Text:
        seconds = time.perf_counter() - self._begun
        left = f"  {seconds:.0f} s, about {seconds / fits * (self._total - fits):.0f} s left" if fits else ""
        failed = f", {failures} failed" if failures else ""
        count = (f"{fits} of {self._total} fits{failed}", "cyan")
        return Text.assemble(("simulation check", "bold"), "  ", count, left)
