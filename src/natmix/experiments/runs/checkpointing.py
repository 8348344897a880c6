"""Checkpoints of a run by the clock."""

import time
from collections.abc import Callable
from typing import Any

from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.experiments.runs.checkpoint import save_state
from natmix.experiments.runs.directory import SeedFiles

CHECKPOINT_SECONDS = 60.0
"""Between two checkpoints."""
FIRST_CHECKPOINT_SECONDS = 10.0
"""The first one comes early, so that little is lost of a run that is killed soon."""
_CHECKPOINT_SHARE = 20  # a checkpoint that took s seconds is followed by 20 s without one


class CheckpointRecorder(Recorder):
    """Writes down everything needed to go on, bit for bit; at the end the records of the others alone.

    When is a matter of the clock; a checkpoint changes no number of the run.
    """

    def __init__(
        self,
        files: SeedFiles,
        seconds: float,
        keep: bool,
        write_records: Callable[[], None],
        progress: Callable[[], dict[str, Any]],
    ) -> None:
        """Prepare it.

        Args:
            files: of the seed.
            seconds: between checkpoints; more if they take long, and at most 10 before the first.
            keep: whether there is a checkpoint at the end, too.
            write_records: writes what the other recorders keep, which has to be as new.
            progress: what they need to go on, as plain data.
        """
        self._files, self._seconds, self._keep = files, seconds, keep
        self._write_records, self._progress = write_records, progress
        self._exists = files.checkpoint.is_file()
        self._last, self._cost = time.perf_counter(), 0.0

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        if run.stopped is None and self._due():
            self.save(run)

    def finished(self, run: SingleRun) -> None:
        if self._keep:
            self.save(run)
            return
        with run.clock.pause():
            self._write_records()

    def save(self, run: SingleRun) -> None:
        """Write a checkpoint now."""
        with run.clock.pause():
            before = time.perf_counter()
            self._write_records()
            state = run.state if run.full_state is None else run.full_state()
            save_state(self._files.checkpoint, state, self._progress())
            self._exists = True
            self._last = time.perf_counter()
            self._cost = self._last - before

    def _due(self) -> bool:
        since = time.perf_counter() - self._last
        if not self._exists:
            return since >= min(FIRST_CHECKPOINT_SECONDS, self._seconds)
        return since >= max(self._seconds, _CHECKPOINT_SHARE * self._cost)
