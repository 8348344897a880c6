"""A live line while simulations are fitted."""

import time

from rich.text import Text

from natmix.engine.live_line import LiveLine

_QUIET_SECONDS = 10.0


class SimulationProgress(LiveLine):
    """Shows how many simulations are fitted."""

    def __init__(self, total: int, show: bool | None) -> None:
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
        return Text.assemble(("simulation check", "bold"), "  ", count, left)
