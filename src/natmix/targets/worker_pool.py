"""Processes of natmix's own: one that hangs or dies is replaced, the others go on."""

import multiprocessing
import os
import time
import weakref
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from natmix.targets.base import TargetError
from natmix.targets.calls import Answer, Call, Raised, pickled
from natmix.targets.worker_process import READY, kill_group, serve
from natmix.targets.workers import AbstractWorkers, Ended, Lost, Task

_GUARD = "a script that starts processes needs `if __name__ == '__main__':` around its calls"

_KILLED_AT_START = 3
"""Processes that may be killed in a row before they are ready; one that ends by itself raises at once."""


class WorkerPool(AbstractWorkers):
    """Processes that are spawned, each with a pipe of its own.

    A process gets the function once, when it starts.

    Args:
        call: the function.
        workers: how many processes.
        timeout: seconds that a task may take; None is no limit.
    """

    def __init__(self, call: Call, workers: int, timeout: float | None) -> None:
        self._data = pickled(call)
        self._timeout = timeout
        self._killed_at_start = 0
        self._workers: list[_Worker] = []
        weakref.finalize(self, _kill_all, self._workers, os.getpid())
        self._workers.extend(_Worker() for _ in range(workers))

    @property
    def number(self) -> int:
        return len(self._workers)

    def takes(self) -> bool:
        return any(w.idle for w in self._workers)

    def start(self, task: Task) -> None:
        worker = next(w for w in self._workers if w.idle)
        worker.task, worker.since = task, time.monotonic()
        try:
            worker.connection.send((task.points, task.needs_gradient))
        except OSError:  # it died while idle; `wait` finds its pipe closed
            worker.begun = False

    def wait(self) -> list[Ended]:
        found = wait([w.connection for w in self._workers], self._next_deadline())
        ended = []
        for place, worker in enumerate(self._workers):
            if worker.connection in found:
                ended += self._heard(place, worker)
            elif worker.task is not None and self._overdue(worker):
                ended.append(Ended(worker.task, Lost(True, f"no answer in {self._timeout:g} s")))
                self._replace(place)
        return ended

    def break_off(self) -> int:
        given = 0
        for place, worker in enumerate(self._workers):
            if worker.task is not None:
                given += len(worker.task.rows)
                self._replace(place)
        return given

    def close(self) -> None:
        _kill_all(self._workers, os.getpid())

    def _overdue(self, worker: "_Worker") -> bool:
        return self._timeout is not None and time.monotonic() >= worker.since + self._timeout

    def _next_deadline(self) -> float | None:
        since = [w.since for w in self._workers if w.task is not None]
        if self._timeout is None or not since:
            return None
        return max(min(since) + self._timeout - time.monotonic(), 0.0)

    def _heard(self, place: int, worker: "_Worker") -> list[Ended]:
        """Take a message of a worker, or the end of its pipe."""
        try:
            message = worker.connection.recv()
            if message == READY:
                worker.connection.send_bytes(self._data)
                return []
        except (EOFError, OSError):
            return self._died(place, worker)
        if isinstance(message, str):
            raise TargetError(message)
        if message is None:
            worker.loaded = True
            return []
        task, worker.task = worker.task, None
        assert task is not None
        outcome = Answer(*message) if isinstance(message, Answer) else Raised(*message)
        return [Ended(task, outcome)]

    def _died(self, place: int, worker: "_Worker") -> list[Ended]:
        worker.process.join(5)
        code = worker.process.exitcode
        if worker.loaded:
            self._killed_at_start = 0
        else:
            self._killed_at_start += 1
        if not worker.loaded and (code is None or code >= 0 or self._killed_at_start > _KILLED_AT_START):
            raise TargetError(f"A worker process ended before its first call (exit code {code}): {_GUARD}.")
        task, begun = worker.task, worker.begun
        self._replace(place)
        return (
            [] if task is None else [Ended(task, Lost(False, f"its process ended, exit code {code}", begun))]
        )

    def _replace(self, place: int) -> None:
        self._workers[place].kill()
        self._workers[place] = _Worker()


class _Worker:
    """A process, its pipe, and what it is doing.

    Attributes:
        loaded: whether it has the function.
        task: what it evaluates.
        since: when that began.
        begun: whether the task was sent.
    """

    def __init__(self) -> None:
        spawning: Any = multiprocessing.get_context("spawn")
        self.connection: Connection
        self.connection, theirs = spawning.Pipe()
        self.process: BaseProcess = spawning.Process(target=serve, args=(theirs,), daemon=True)
        try:
            self.process.start()
        except RuntimeError as error:  # while a script is imported by a process that it started
            raise TargetError(f"No process could be started: {_GUARD}.") from error
        theirs.close()
        self.loaded, self.begun = False, True
        self.task: Task | None = None
        self.since = 0.0

    @property
    def idle(self) -> bool:
        return self.loaded and self.task is None

    def kill(self) -> None:
        if self.process.pid is not None and self.process.exitcode is None:
            kill_group(self.process.pid)
        self.process.join(5)
        self.connection.close()


def _kill_all(workers: list[_Worker], owner: int) -> None:
    if os.getpid() == owner:  # not in a fork of it
        for worker in workers:
            worker.kill()
        workers.clear()
