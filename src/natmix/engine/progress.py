"""A live line while a fit runs: iteration, ELBO, components, evaluations, rate, time."""

import time

from rich.text import Text

from natmix.engine.live_line import LiveLine

_QUIET_SECONDS = 2.0


class Progress(LiveLine):
    """Shows where a fit is."""

    def __init__(self, title: str, show: bool | None) -> None:
        super().__init__(Text.assemble((title, "bold"), "  compiling …"), show, _QUIET_SECONDS)
        self._title = title
        self._start = time.perf_counter()

    def update(
        self, iteration: int, elbo: float, elbo_se: float, components: int, evaluations: int, rate: float
    ) -> None:
        """Show where the run is."""
        if self.shown:
            self.say(self._line(iteration, elbo, elbo_se, components, evaluations, rate))

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
