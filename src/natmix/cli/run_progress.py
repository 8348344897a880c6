"""What ``natmix run`` shows: a live line per seed on a terminal, lines now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from natmix.experiments.runs.watcher import SeedSnapshot

_QUIET_SECONDS = 10.0


class RunProgress:
    """A `natmix.experiments.runs.Watcher` that prints."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._quiet = quiet
        self._lines: dict[int, Text] = {}
        self._live: Live | None = None
        self._last_print = 0.0

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            self._live = Live(console=self._console, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def skipped(self, seed: int) -> None:
        """The seed had finished before."""
        self._show(seed, Text.assemble(_title(seed), "finished before, skipped"), at_once=True)

    def started(self, seed: int, resumed_at: int, anew: bool) -> None:
        """The seed starts, or goes on."""
        how = f"goes on after iteration {resumed_at:,}" if resumed_at else "compiling …"
        if anew:
            how = f"no checkpoint, starts from the beginning: {how}"
        self._show(seed, Text.assemble(_title(seed), how), at_once=True)

    def update(self, snapshot: SeedSnapshot) -> None:
        """After every chunk."""
        self._show(snapshot.seed, progress_line(snapshot))

    def finished(self, snapshot: SeedSnapshot, final: dict[str, Any]) -> None:
        """The seed has its final numbers."""
        line = Text.assemble(progress_line(snapshot), (f"  done ({final['stopped']})", "bold"))
        self._show(snapshot.seed, line, at_once=True)

    def failed(self, seed: int, error: str) -> None:
        """The seed could not go on."""
        self._show(seed, Text.assemble(_title(seed), (f"FAILED: {error}", "red")), at_once=True)

    def _show(self, seed: int, line: Text, at_once: bool = False) -> None:
        self._lines[seed] = line
        now = time.perf_counter()
        if self._live is not None:
            self._live.update(Group(*self._lines.values()))
        elif not self._quiet and (at_once or now - self._last_print >= _QUIET_SECONDS):
            self._last_print = now
            self._console.print(line, soft_wrap=True)


def _title(seed: int) -> tuple[str, str]:
    return (f"seed {seed}  ", "bold")


def progress_line(s: SeedSnapshot) -> Text:
    """One line on the state of a seed."""
    seen: list[str | tuple[str, str]] = []
    if s.neg_elbo is not None:
        seen = ["  -ELBO ", (f"{s.neg_elbo:,.4f} ± {s.neg_elbo_se:.2g}", "green")]
    return Text.assemble(
        _title(s.seed),
        "iteration ",
        (f"{s.iterations:,}", "cyan"),
        *seen,
        "  components ",
        (f"{s.components}", "cyan"),
        "  evaluations ",
        (f"{s.evaluations:,}", "cyan"),
        f"  {s.seconds:.0f} s",
    )
