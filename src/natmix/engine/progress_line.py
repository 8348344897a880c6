"""A live line while a fit runs: iteration, ELBO, components, evaluations, rate, time."""

from rich.text import Text

from natmix.engine.live_line import LiveLine
from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.engine.snapshot import FitSnapshot

_QUIET_SECONDS = 2.0


class ProgressLine(LiveLine, Recorder):
    """Shows where a fit is."""

    def __init__(self, title: str, show: bool | None) -> None:
        super().__init__(Text.assemble((title, "bold"), "  compiling …"), show, _QUIET_SECONDS)
        self._title = title

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        if self.shown:
            self.say(self._line(FitSnapshot.of(run, chunk), run.iterations / max(run.running_seconds, 1e-9)))

    def _line(self, s: FitSnapshot, rate: float) -> Text:
        return Text.assemble(
            (self._title, "bold"),
            "  iteration ",
            (f"{s.iteration:,}", "cyan"),
            "  ELBO ",
            (f"{s.elbo:,.4f} ± {s.elbo_se:.2g}", "green"),
            "  components ",
            (f"{s.components}", "cyan"),
            "  evaluations ",
            (f"{s.evaluations:,}", "cyan"),
            f"  {rate:.3g} it/s  {s.seconds:.0f} s",
        )
