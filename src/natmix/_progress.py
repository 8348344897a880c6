"""A live line while a fit runs: iteration, ELBO, components, evaluations, rate, time."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

_QUIET_SECONDS = 2.0


class Progress:
    """Shows a line that renews itself on a terminal, and a line now and then elsewhere."""

    def __init__(self, title: str, show: bool | None) -> None:
        self._console = Console(stderr=True)
        self._show = sys.stderr.isatty() if show is None else show
        self._live: Live | None = None
        self._title = title
        self._start = time.perf_counter()
        self._last_print = 0.0

    def __enter__(self) -> Self:
        if self._show and self._console.is_terminal:
            self._live = Live(self._waiting(), console=self._console, refresh_per_second=8, transient=False)
            self._live.start()
        elif self._show:
            self._console.print(self._waiting())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(
        self, iteration: int, elbo: float, elbo_se: float, components: int, evaluations: int, rate: float
    ) -> None:
        """Show where the run is."""
        if not self._show:
            return
        line = self._line(iteration, elbo, elbo_se, components, evaluations, rate)
        now = time.perf_counter()
        if self._live is not None:
            self._live.update(line)
        elif now - self._last_print >= _QUIET_SECONDS:
            self._last_print = now
            self._console.print(line, soft_wrap=True)

    def _waiting(self) -> Text:
        return Text.assemble((self._title, "bold"), "  compiling …")

    def _line(
        self, iteration: int, elbo: float, elbo_se: float, components: int, evaluations: int, rate: float
    ) -> Text:
        seconds = time.perf_counter() - self._start
        return Text.assemble(
            (self._title, "bold"),
            "  iteration ",
            (f"{iteration:,}", "cyan"),
            "  ELBO ",
            (f"{elbo:,.4f} ± {elbo_se:.2g}", "green"),
            "  components ",
            (f"{components}", "cyan"),
            "  evaluations ",
            (f"{evaluations:,}", "cyan"),
            f"  {rate:.3g} it/s  {seconds:.0f} s",
        )
