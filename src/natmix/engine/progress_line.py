"""A live line while a fit runs: iteration, ELBO, components, evaluations, rate, time, share of the budget."""

import math
from types import TracebackType
from typing import NamedTuple

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
        self._at_end: Text | None = None

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        if self.shown:
            rate = run.iterations / max(run.running_seconds, 1e-9)
            snapshot, spent = FitSnapshot.of(run, chunk), Spent.of(run)
            self._at_end = self._line(snapshot, rate, spent.text(ended=True))
            self.say(self._line(snapshot, rate, spent.text()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._at_end is not None and self.stays:
            self.say(self._at_end, at_once=True)
        super().__exit__(kind, error, trace)

    def _line(self, s: FitSnapshot, rate: float, spent: str) -> Text:
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
            spent,
        )


class Spent(NamedTuple):
    """How much of its limits a run has spent.

    Attributes:
        share: of the limit that is reached first.
        seconds_left: until then, at the rate so far.
    """

    share: float
    seconds_left: float

    @classmethod
    def of(cls, run: SingleRun) -> "Spent":
        """Nothing is known of a run without limits."""
        limits, shares, left = run.limits, [0.0], [math.inf]
        total = None if limits.max_evaluations is None else limits.max_evaluations - run.aside
        for done, most in ((run.iterations, limits.max_iterations), (run.evaluations, total)):
            if most is not None and most > 0 and done:
                shares.append(min(done / most, 1.0))
                left.append(run.running_seconds * max(most - done, 0) / done)
        if limits.max_seconds is not None:
            shares.append(min((run.seconds + run.seconds_aside) / limits.max_seconds, 1.0))
            left.append(max(limits.seconds_left(run.seconds + run.seconds_aside, run.compile_seconds), 0.0))
        first = min(range(len(left)), key=left.__getitem__)
        return cls(shares[first], left[first])

    def text(self, ended: bool = False) -> str:
        """Empty without limits; a fit may end earlier, and then nothing is left."""
        if not math.isfinite(self.seconds_left):
            return ""
        if ended:
            return f"  {self.share:.0%} of the budget"
        return f"  {self.share:.0%} of the budget, up to {duration(self.seconds_left)} left"


def duration(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
