"""What the page shows of one fit, or of one seed of a run."""

import dataclasses
import math
import os
import time
from pathlib import Path
from typing import Any

from natmix.engine.progress_file import ProgressCurves

QUIET_SECONDS = 150.0
"""Without news for so long a run is called quiet: checkpoints are a minute apart."""
WAITING, RUNNING, QUIET = "waiting", "running", "quiet"
ENDED, INTERRUPTED, FAILED, UNREADABLE = "ended", "interrupted", "failed", "unreadable"
"""States of a run."""
NO_CURVES = ProgressCurves(iterations=[], evaluations=[], seconds=[], elbo=[], kl=[], components=[])


@dataclasses.dataclass(frozen=True)
class RunView:
    """Everything that is shown of one run; None where it is not known.

    Attributes:
        name: its place below the folder that is watched.
        about: target and algorithm.
        state: one of the states.
        detail: the state in words.
        iterations: done.
        evaluations: of the target.
        components: of the mixture.
        seconds: on its clock.
        rate: evaluations per second.
        elbo: the last estimate.
        elbo_se: its standard error.
        kl: the last estimate of KL(q || p).
        goal: KL at which it ends.
        share: of its budget.
        seconds_left: of it.
        updated: when it was last heard of, in seconds since 1970.
        checkpoint: when its last checkpoint was written.
        verdict: at the end.
        reasons: of the verdict.
        notes: what the user should know.
        curves: numbers over the iterations.
        phase: what it does, in words.
        process: its number on this machine.
    """

    name: str
    about: str = ""
    state: str = WAITING
    detail: str = ""
    iterations: int | None = None
    evaluations: int | None = None
    components: int | None = None
    seconds: float | None = None
    rate: float | None = None
    elbo: float | None = None
    elbo_se: float | None = None
    kl: float | None = None
    goal: float | None = None
    share: float | None = None
    seconds_left: float | None = None
    updated: float | None = None
    checkpoint: float | None = None
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    curves: ProgressCurves = dataclasses.field(default_factory=lambda: NO_CURVES)
    phase: str = ""
    process: int | None = None

    def now(self) -> "RunView":
        """The same at this moment: a run that has not ended may have become quiet."""
        if self.state not in (RUNNING, QUIET):
            return self
        state, detail = silence(self.updated, self.phase)
        if self.process is not None and not alive(self.process):
            state, detail = QUIET, "its process is gone; the same call goes on from the last checkpoint"
        return dataclasses.replace(self, state=state, detail=detail)

    def plain(self) -> dict[str, Any]:
        """As plain data in which every number is finite."""
        return _finite(dataclasses.asdict(self))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def modified(path: Path) -> float | None:
    """When a file was last written, in seconds since 1970; None if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def ago(seconds: float) -> str:
    """A length of time in words."""
    for most, unit, size in ((100, "s", 1), (6000, "min", 60), (172_800, "h", 3600)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def silence(updated: float | None, phase: str = "") -> tuple[str, str]:
    """The state of a run that has not ended, by when it was last heard of, and the state in words."""
    if updated is None:
        return WAITING, "no news yet"
    seconds = max(time.time() - updated, 0.0)
    if seconds < QUIET_SECONDS:
        return RUNNING, phase or "running"
    # A fit that compiles or searches writes nothing meanwhile.
    return QUIET, "; ".join(part for part in (phase, f"no news for {ago(seconds)}") if part)


def alive(process: int) -> bool:
    """Whether there is such a process on this machine; True where that cannot be told."""
    if os.name != "posix" or process <= 0:
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def rate_of(curves: ProgressCurves, recent: int = 12) -> float | None:
    """Evaluations per second over the last points of the curves."""
    evaluations, seconds = curves["evaluations"][-recent:], curves["seconds"][-recent:]
    if len(seconds) < 2 or not seconds[-1] > seconds[0]:
        return None
    return (evaluations[-1] - evaluations[0]) / (seconds[-1] - seconds[0])


def last(values: list[Any]) -> Any:
    """The last value that is known."""
    return next((value for value in reversed(values) if value is not None), None)
