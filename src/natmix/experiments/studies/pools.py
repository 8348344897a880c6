"""Where trials run: in this process, or in processes of this machine. `dask_pool` has those of a cluster."""

import abc
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Literal, NamedTuple

from natmix.experiments.studies.own_cores import CoreShare
from natmix.experiments.studies.study_folder import StudyFolder
from natmix.experiments.studies.trial_attempt import Report, study_in
from natmix.experiments.studies.trial_slots import TrialSlots, room
from natmix.interrupts import Interrupt


class PoolReport(NamedTuple):
    """How an attempt at a trial ended.

    Attributes:
        number: of the trial.
        report: as `natmix.experiments.studies.trial_attempt.attempt_trial` has it, or "lost": its process
            was killed, or "crashed".
        reason: of a crash.
    """

    number: int
    report: Report | Literal["lost", "crashed"]
    reason: str = ""


class AbstractPool(abc.ABC):
    """Runs attempts at trials of one study."""

    @property
    @abc.abstractmethod
    def free(self) -> int:
        """How many more trials it takes now."""

    def fits(self, cell: int) -> bool:
        """Whether it takes a trial of this cell now: trials that share a program have one cell."""
        return True

    @abc.abstractmethod
    def submit(self, number: int) -> None:
        """Take a trial."""

    @abc.abstractmethod
    def wait(self, seconds: float) -> list[PoolReport]:
        """Attempts that have ended; returns without any after so many seconds."""

    @abc.abstractmethod
    def close(self) -> None:
        """End, leaving checkpoints of what runs where that is possible."""

    def __enter__(self) -> "AbstractPool":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Held:
    """Trials that one process was given: of one cell, as many as it has room for.

    Attributes:
        slots: trials that it runs at once.
        numbers: the trials.
        cell: theirs.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.numbers: set[int] = set()
        self.cell = 0

    @property
    def free(self) -> int:
        """How many more it takes."""
        return room(self.slots) - len(self.numbers)

    def fits(self, cell: int) -> bool:
        """Whether it takes a trial of this cell."""
        return not self.numbers or (self.cell == cell and self.free > 0)

    def take(self, number: int, cell: int) -> None:
        """It has this trial."""
        self.numbers.add(number)
        self.cell = cell


def cell_of(folder: Path, number: int) -> int:
    """The cell of a trial of the study in a folder."""
    return study_in(StudyFolder(folder)).positions(number)[0]


class InProcess(AbstractPool):
    """Trials in this process: one after another, or so many at once in slots of a batch."""

    def __init__(self, folder: str | Path, interrupt: Interrupt | None = None, slots: int = 1) -> None:
        self._folder, self._held = Path(folder), Held(slots)
        self._trials = TrialSlots(folder, slots, interrupt)

    @property
    def free(self) -> int:
        return self._held.free

    def fits(self, cell: int) -> bool:
        return self._held.fits(cell)

    def submit(self, number: int) -> None:
        self._held.take(number, cell_of(self._folder, number))
        self._trials.submit(number)

    def wait(self, seconds: float) -> list[PoolReport]:
        return self._reports(self._trials.advance()) if self._trials.held else []

    def close(self) -> None:
        self._reports(self._trials.close())

    def _reports(self, ended: list[tuple[int, Report]]) -> list[PoolReport]:
        self._held.numbers -= {number for number, _ in ended}
        return [PoolReport(number, report) for number, report in ended]


class LocalProcesses(AbstractPool):
    """Processes of this machine; a process that dies is replaced.

    Each owns a device (`natmix.experiments.studies.own_device`) and its share of the cores. They end, with
    checkpoints, when this process does.
    """

    def __init__(self, folder: str | Path, processes: int, slots: int = 1) -> None:
        self._folder, self._slots = Path(folder), slots
        self._ended: queue.SimpleQueue[tuple[_TrialProcess, Any]] = queue.SimpleQueue()
        self._places: list[_TrialProcess | None] = [None] * processes

    @property
    def _workers(self) -> list["_TrialProcess"]:
        return [worker for worker in self._places if worker is not None]

    @property
    def free(self) -> int:
        each = room(self._slots)
        return sum(each if worker is None else worker.held.free for worker in self._places)

    def fits(self, cell: int) -> bool:
        return any(worker is None or worker.held.fits(cell) for worker in self._places)

    def submit(self, number: int) -> None:
        cell = cell_of(self._folder, number)
        self._worker_for(cell).submit(number, cell)

    def _worker_for(self, cell: int) -> "_TrialProcess":
        """One that runs the cell and has a free slot, or has nothing to do, or is new, or has room."""
        alike = [worker for worker in self._workers if worker.held.numbers and worker.held.fits(cell)]
        least = min(alike, key=lambda worker: len(worker.held.numbers), default=None)
        idle = next((worker for worker in self._workers if not worker.held.numbers), None)
        if least is not None and len(least.held.numbers) < self._slots:
            return least
        if idle is not None:
            return idle
        if None in self._places:
            at = self._places.index(None)
            share = CoreShare(at, len(self._places))
            worker = self._places[at] = _TrialProcess(self._folder, self._slots, share, self._ended)
            return worker
        assert least is not None
        return least

    def wait(self, seconds: float) -> list[PoolReport]:
        found: list[PoolReport] = []
        with contextlib.suppress(queue.Empty):
            while True:
                worker, answer = self._ended.get(timeout=0 if found else seconds)
                if worker not in self._places or (answer is not None and "ready" in answer):
                    continue
                if answer is not None:
                    worker.held.numbers.discard(answer["number"])
                    found.append(PoolReport(answer["number"], answer["report"]))
                    continue
                self._places[self._places.index(worker)] = None
                found += worker.reports_of_death()
                worker.end()
        return found

    def processes(self) -> list[int]:
        """The ids of the processes."""
        return [worker.process.pid for worker in self._workers]

    def close(self) -> None:
        for worker in self._workers:
            worker.ask_to_end()
        for worker in self._workers:
            worker.end()
        self._places = [None] * len(self._places)


class _TrialProcess:
    """A process, told the numbers of trials line by line.

    Attributes:
        process: it.
        held: the trials that it has.
    """

    def __init__(
        self,
        folder: Path,
        slots: int,
        share: CoreShare,
        ended: "queue.SimpleQueue[tuple[_TrialProcess, Any]]",
    ) -> None:
        numbers = map(str, (slots, *share))
        command = [sys.executable, "-m", "natmix.experiments.studies.worker", str(folder), *numbers]
        self.held = Held(slots)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ),
            start_new_session=True,
        )
        self._ended = ended
        self._is_ready = False
        threading.Thread(target=self._listen, daemon=True).start()

    def submit(self, number: int, cell: int) -> None:
        self.held.take(number, cell)
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: `_listen` says so
            self.process.stdin.write(f"{number}\n".encode())
            self.process.stdin.flush()

    def reports_of_death(self) -> list[PoolReport]:
        """Why it died with its trials: killed by someone, or by itself."""
        code = self.process.wait()
        if code > 0 and not self._is_ready and self.held.numbers:
            self.end()
            raise ChildProcessError("A process for trials could not start; what it said is above.")
        if code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, 0):
            return [PoolReport(number, "lost") for number in sorted(self.held.numbers)]
        how = f"with the exit code {code}" if code > 0 else f"by the signal {signal.Signals(-code).name}"
        why = f"its process ended {how}"
        return [PoolReport(number, "crashed", why) for number in sorted(self.held.numbers)]

    def ask_to_end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def end(self) -> None:
        """Wait for its checkpoint, but not for ever."""
        self.ask_to_end()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # it was closed
            for line in self.process.stdout:
                answer = json.loads(line)
                self._is_ready = True
                self._ended.put((self, answer))
        self._ended.put((self, None))


_PATIENCE = 60.0
