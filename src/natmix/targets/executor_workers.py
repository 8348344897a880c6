"""The workers of somebody else's executor: processes, threads, Dask, MPI."""

import contextlib
import queue
import secrets
import time
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from typing import Any

from natmix.targets.base import TargetError
from natmix.targets.calls import Answer, Call, Raised, Unknown, pickled, remote_call
from natmix.targets.workers import AbstractWorkers, Ended, Lost, Task

_SMALL = 2**16
"""Bytes of a function that travels with every task."""

_AHEAD = 4
"""Tasks per worker that the executor is given ahead."""

_LARGE_AHEAD = 32
"""Tasks at once, for a large function and an unknown number of workers."""

_NOT_BEGUN = 3
"""Tasks that may wait in vain for a worker, one after the other, each for the timeout."""


class ExecutorWorkers(AbstractWorkers):
    """Any `concurrent.futures.Executor`.

    Its processes cannot be ended from here. A task that hangs is abandoned: it keeps its worker. With a
    timeout only as many tasks are given at once as there are workers, so that each begins when it is given.

    Args:
        call: the function.
        executor: what evaluates it.
        workers: how many calls it makes at once; found out where it is a pool of `concurrent.futures`.
        timeout: seconds that a task may take; None is no limit.
    """

    def __init__(self, call: Call, executor: Executor, workers: int | None, timeout: float | None) -> None:
        self._call, self._executor, self._timeout = call, executor, timeout
        self._number = workers or _workers_of(executor)
        if timeout is not None and self._number is None:
            raise ValueError(
                f"With timeout= say by workers= how many calls the {type(executor).__name__} makes at once."
            )
        self._data: bytes | None = None
        if not isinstance(executor, ThreadPoolExecutor):
            with contextlib.suppress(TargetError):  # its own way to send it may be a better one
                self._data = pickled(call)
        self._token = secrets.token_hex(8)
        self._large = self._data is not None and len(self._data) > _SMALL
        self._running: dict[Future, tuple[Task, float]] = {}
        self._abandoned: set[Future] = set()
        self._not_begun = 0
        self._done: queue.SimpleQueue[Future] = queue.SimpleQueue()

    @property
    def number(self) -> int | None:
        return self._number

    def takes(self) -> bool:
        self._abandoned = {f for f in self._abandoned if not f.done()}
        if self._number is not None:
            free = self._number - len(self._abandoned)
            if free <= 0 or self._not_begun > _NOT_BEGUN:
                raise TargetError(
                    "All workers of the executor hang in calls that it cannot end: give workers= instead of "
                    "executor=, and natmix replaces processes that hang."
                )
            return len(self._running) < (free if self._timeout is not None else _AHEAD * free)
        return not self._large or len(self._running) < _LARGE_AHEAD

    def start(self, task: Task) -> None:
        self._submit(task, None if self._large else self._data)

    def wait(self) -> list[Ended]:
        try:
            future = self._done.get(timeout=self._next_deadline())
        except queue.Empty:
            return self._hung()
        found = self._running.pop(future, None)
        if found is None:  # it was abandoned
            return []
        task, _ = found
        self._not_begun = 0
        outcome = self._outcome(future)
        if isinstance(outcome, Unknown):
            self._submit(task, self._data)
            return []
        return [Ended(task, outcome)]

    def break_off(self) -> int:
        given = sum(len(task.rows) for f, (task, _) in self._running.items() if not f.cancel())
        self._running.clear()
        return given

    def close(self) -> None:
        self.break_off()

    def _submit(self, task: Task, data: bytes | None) -> None:
        work: tuple[Any, ...]
        if self._data is None:
            work = (self._call, task.points, task.needs_gradient)
        else:
            work = (remote_call, self._token, data, task.points, task.needs_gradient)
        try:
            future = self._executor.submit(*work)
        except Exception as error:
            raise _broken(error) from error
        self._running[future] = task, time.monotonic()
        future.add_done_callback(self._done.put)

    def _outcome(self, future: Future) -> Answer | Raised | Unknown | Lost:
        try:
            outcome: Answer | Raised | Unknown = future.result()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BrokenExecutor as error:
            raise _broken(error) from error
        except (CancelledError, Exception) as error:  # raised by the executor: the function's are `Raised`
            return Lost(False, f"{type(error).__name__}: {error}")
        return outcome

    def _next_deadline(self) -> float | None:
        if self._timeout is None or not self._running:
            return None
        first = min(since for _, since in self._running.values())
        return max(first + self._timeout - time.monotonic(), 0.0)

    def _hung(self) -> list[Ended]:
        assert self._timeout is not None
        ended, now = [], time.monotonic()
        for future, (task, since) in list(self._running.items()):
            if now >= since + self._timeout and not future.done():
                del self._running[future]
                began = not future.cancel()
                if began:
                    self._abandoned.add(future)
                self._not_begun += not began
                ended.append(Ended(task, Lost(True, f"no answer in {self._timeout:g} s", began)))
        return ended


def _workers_of(executor: Executor) -> int | None:
    number = getattr(executor, "_max_workers", None)
    return number if isinstance(number, int) else None


def _broken(error: Exception) -> TargetError:
    return TargetError(
        f"The executor no longer works ({type(error).__name__}: {error}): a process of it died, or it was "
        "shut down. With workers= instead of executor= natmix replaces processes that die."
    )
