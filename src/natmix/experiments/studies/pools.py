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
from collections import deque
from pathlib import Path
from typing import Any, Literal, NamedTuple

from natmix.experiments.studies.trial_attempt import Report, attempt_trial
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


class InProcess(AbstractPool):
    """One trial after another in this process."""

    def __init__(self, folder: str | Path, interrupt: Interrupt | None = None) -> None:
        self._folder, self._interrupt = folder, interrupt or Interrupt()
        self._waiting: deque[int] = deque()

    @property
    def free(self) -> int:
        return int(not self._waiting)

    def submit(self, number: int) -> None:
        self._waiting.append(number)

    def wait(self, seconds: float) -> list[PoolReport]:
        if not self._waiting:
            return []
        number = self._waiting.popleft()
        return [PoolReport(number, attempt_trial(self._folder, number, self._interrupt))]

    def close(self) -> None:
        self._waiting.clear()


class LocalProcesses(AbstractPool):
    """Processes of this machine, one trial each; a process that dies is replaced.

    Each owns a device (`natmix.experiments.studies.own_device`). They end, with checkpoints, when this
    process does.
    """

    def __init__(self, folder: str | Path, processes: int) -> None:
        self._folder, self._processes = Path(folder), processes
        self._ended: queue.SimpleQueue[tuple[_TrialProcess, Any]] = queue.SimpleQueue()
        self._idle: list[_TrialProcess] = []
        self._busy: dict[_TrialProcess, int] = {}

    @property
    def free(self) -> int:
        return self._processes - len(self._busy)

    def submit(self, number: int) -> None:
        worker = self._idle.pop() if self._idle else _TrialProcess(self._folder, self._ended)
        self._busy[worker] = number
        worker.submit(number)

    def wait(self, seconds: float) -> list[PoolReport]:
        found: list[PoolReport] = []
        with contextlib.suppress(queue.Empty):
            while True:
                worker, answer = self._ended.get(timeout=0 if found else seconds)
                if answer is not None and "ready" in answer:
                    continue
                number = self._busy.pop(worker, None)
                if answer is not None and number is not None:
                    self._idle.append(worker)
                    found.append(PoolReport(number, answer["report"]))
                elif number is not None:
                    found.append(worker.report_of_death(number))
                    worker.end()
                elif worker in self._idle:
                    self._idle.remove(worker)
                    worker.end()
        return found

    def processes(self) -> list[int]:
        """The ids of the processes."""
        return [worker.process.pid for worker in (*self._busy, *self._idle)]

    def close(self) -> None:
        workers = [*self._busy, *self._idle]
        for worker in workers:
            worker.ask_to_end()
        for worker in workers:
            worker.end()
        self._busy.clear()
        self._idle.clear()


class _TrialProcess:
    """A process, told the numbers of trials line by line."""

    def __init__(self, folder: Path, ended: "queue.SimpleQueue[tuple[_TrialProcess, Any]]") -> None:
        command = [sys.executable, "-m", "natmix.experiments.studies.worker", str(folder)]
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

    def submit(self, number: int) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: `_listen` says so
            self.process.stdin.write(f"{number}\n".encode())
            self.process.stdin.flush()

    def report_of_death(self, number: int) -> PoolReport:
        """Why it died with a trial: killed by someone, or by itself."""
        code = self.process.wait()
        if code > 0 and not self._is_ready:
            self.end()
            raise ChildProcessError("A process for trials could not start; what it said is above.")
        if code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, 0):
            return PoolReport(number, "lost")
        how = f"with the exit code {code}" if code > 0 else f"by the signal {signal.Signals(-code).name}"
        return PoolReport(number, "crashed", f"its process ended {how}")

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
