"""Checkpoints of a run by the clock."""

import time
from collections.abc import Callable

from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.experiments.runs.checkpoint import Owner, Records, save_checkpoint
from natmix.experiments.runs.directory import SeedFiles
from natmix.experiments.runs.saving import Saving
from natmix.files.generations import exists

CHECKPOINT_SECONDS = 60.0
"""Between two checkpoints."""
FIRST_CHECKPOINT_SECONDS = 10.0
"""The first one comes early, so that little is lost of a run that is killed soon."""
_CHECKPOINT_SHARE = 20  # a checkpoint that took s seconds is followed by 20 s without one


class CheckpointRecorder(Recorder):
    """Writes down everything needed to go on, bit for bit.

    When is a matter of the clock; a checkpoint changes no number of the run.
    """

    def __init__(
        self,
        files: SeedFiles,
        owner: Owner,
        saving: Saving,
        seconds: float,
        keep: bool,
        records: Callable[[], Records],
    ) -> None:
        """Prepare it.

        Args:
            files: of the seed.
            owner: whose checkpoints they are.
            saving: writes files.
            seconds: between checkpoints; more if they take long, and at most 10 before the first.
            keep: whether there is a checkpoint at the end, too.
            records: what the other recorders need to go on.
        """
        self._files, self._owner, self._saving, self._seconds = files, owner, saving, seconds
        self._keep, self._records = keep, records
        self._exists = exists(files.checkpoint)
        self._last, self._cost = time.perf_counter(), 0.0

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        if run.stopped is None and self._due():
            self.save(run)

    def finished(self, run: SingleRun) -> None:
        if self._keep:
            self.save(run)

    def save(self, run: SingleRun) -> None:
        """Write a checkpoint now, if that is possible."""
        with run.clock.pause():
            before = time.perf_counter()
            state = run.state if run.full_state is None else run.full_state()
            records = self._records()

            def write() -> None:
                self._files.create()
                save_checkpoint(self._files.checkpoint, state, records, self._owner)

            # What was not written is tried again after as long as what was.
            self._exists = self._saving.attempt(write) or self._exists
            self._last = time.perf_counter()
            self._cost = self._last - before

    def _due(self) -> bool:
        since = time.perf_counter() - self._last
        if not self._exists:
            return since >= min(FIRST_CHECKPOINT_SECONDS, self._seconds)
        return since >= max(self._seconds, _CHECKPOINT_SHARE * self._cost)
