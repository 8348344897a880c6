"""Checkpoints of a run by the clock."""

import time
from collections.abc import Callable

from natmix.engine.checkpoint_schedule import CheckpointSchedule
from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.experiments.runs.checkpoint import Owner, Records, save_checkpoint
from natmix.experiments.runs.directory import SeedFiles
from natmix.files.generations import exists
from natmix.files.saving import Saving
from natmix.modules.state import State


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
        as_stored: Callable[[State], State] = lambda state: state,
    ) -> None:
        """Prepare it.

        Args:
            files: of the seed.
            owner: whose checkpoints they are.
            saving: writes files.
            seconds: between checkpoints; more if they take long, and at most 10 before the first.
            keep: whether there is a checkpoint at the end, too.
            records: what the other recorders need to go on.
            as_stored: the state as it is stored.
        """
        self._files, self._owner, self._saving = files, owner, saving
        self._keep, self._records, self._as_stored = keep, records, as_stored
        self._schedule = CheckpointSchedule(seconds, exists(files.checkpoint))

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        if run.stopped is None and self._schedule.due():
            self.save(run)

    def finished(self, run: SingleRun) -> None:
        if self._keep:
            self.save(run)

    def save(self, run: SingleRun) -> None:
        """Write a checkpoint now, if that is possible."""
        with run.clock.pause():
            before = time.perf_counter()
            state = self._as_stored(run.state if run.full_state is None else run.full_state())
            records = self._records()

            def write() -> None:
                self._files.create()
                save_checkpoint(self._files.checkpoint, state, records, self._owner)

            written = self._saving.attempt(write)
            self._schedule.done(time.perf_counter() - before, written)
