"""A live line while many fits are made: how many are done, and the time left."""

import time

from rich.text import Text

from natmix.engine.live_line import LiveLine

_QUIET_SECONDS = 10.0


class FitsProgress(LiveLine):
    """Shows how many of all fits are done."""

    def __init__(self, title: str, total: int, show: bool | None) -> None:
        self._title = title
        self._total = total
        self._started = time.perf_counter()
        super().__init__(self._line(0, 0), show, _QUIET_SECONDS)

    def done(self, fits: int, failures: int) -> None:
        """Show how many are done."""
        self.say(self._line(fits, failures), at_once=fits == self._total)

    def _line(self, fits: int, failures: int) -> Text:
        seconds = time.perf_counter() - self._started
        left = f"  {seconds:.0f} s, about {seconds / fits * (self._total - fits):.0f} s left" if fits else ""
        failed = f", {failures} failed" if failures else ""
        count = (f"{fits} of {self._total} fits{failed}", "cyan")
        return Text.assemble((self._title, "bold"), "  ", count, left)
