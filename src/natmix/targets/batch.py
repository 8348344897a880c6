"""The evaluation of a batch of points, outside JAX: which calls are made, where, and what came of them."""

import contextlib
import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from natmix.interrupts import Interrupted
from natmix.targets.base import TargetError
from natmix.targets.calls import Answer, Call, Raised
from natmix.targets.executor_workers import ExecutorWorkers
from natmix.targets.journal import Journal
from natmix.targets.worker_pool import WorkerPool
from natmix.targets.workers import AbstractWorkers, Ended, Lost, Task

logger = logging.getLogger("natmix")

_TASK_SECONDS = 0.005
"""Calls that are cheaper than this are made several to a task."""

_TASKS = 64
"""Tasks of a batch, at least, if there are as many points; as many have a batched function by default."""

_RECENT = 0.2
"""The weight of the last task in the mean seconds per point."""

_EXCLUDED_IN_A_ROW = 5
"""More points than there are workers that may be excluded one after the other, without an answer between."""


class CallCounts(NamedTuple):
    """What the calls of a target's function came to.

    Attributes:
        evaluated: points that the function answered.
        from_journal: points taken from the journal instead.
        timed_out: calls that were given up after ``timeout`` seconds.
        died: calls whose process died.
        excluded: points that were given up.
        seconds: spent in the function, by all workers together.
    """

    evaluated: int = 0
    from_journal: int = 0
    timed_out: int = 0
    died: int = 0
    excluded: int = 0
    seconds: float = 0.0

    def since(self, before: "CallCounts") -> "CallCounts":
        """What was added since then."""
        pairs = zip(self._fields, self, before, strict=True)
        return CallCounts(**{name: now - then for name, now, then in pairs})  # type: ignore[arg-type]


class How(NamedTuple):
    """How a target's function is called.

    Attributes:
        fn: the function.
        gradient: the separate function for the gradient.
        dim: D.
        batched: whether both take many points.
        batch_size: points per call of a batched function, and per task.
        executor: where it is called.
        workers: processes of natmix's own, or calls that the executor makes at once.
        timeout: seconds per call.
        retries: how often a call is repeated that hung or whose process died.
        journal: a folder.
        parse: the checked values and gradients of an answer for so many points.
    """

    fn: Callable[..., Any]
    gradient: Callable[..., Any] | None
    dim: int
    batched: bool
    batch_size: int | None
    executor: Executor | None
    workers: int | None
    timeout: float | None
    retries: int
    journal: str | Path | None
    parse: Callable[[Answer, int, bool], "Values"]

    @property
    def plain(self) -> bool:
        """Whether it is called in this process, one point after the other, and nothing is written."""
        return (
            self.executor is None and self.workers is None and self.timeout is None and self.journal is None
        )

    def same_workers(self, other: "How | None") -> bool:
        """Whether workers and journal of another one may be used."""
        if other is None:
            return False
        same = all(getattr(self, name) is getattr(other, name) for name in ("fn", "gradient", "executor"))
        plain = ("batched", "workers", "timeout", "journal", "dim")
        return same and all(getattr(self, name) == getattr(other, name) for name in plain)


class Values(NamedTuple):
    """Values at some points.

    Attributes:
        values: the log densities.
        gradients: None if they are not known.
    """

    values: Float[np.ndarray, " n"]
    gradients: Float[np.ndarray, "n D"] | None


@dataclasses.dataclass
class _Open:
    """The batch that is evaluated.

    Attributes:
        points: all of it.
        needs_gradient: whether gradients are needed.
        values: so far.
        gradients: so far.
        given: points that the function has been given.
        alone: places of points that are evaluated alone, because a task with them and others was lost.
    """

    points: Float[np.ndarray, "n D"]
    needs_gradient: bool
    values: Float[np.ndarray, " n"]
    gradients: Float[np.ndarray, "n D"]
    given: int = 0
    alone: set[int] = dataclasses.field(default_factory=set)


class Calls:
    """The calls of one target: their counts, and the workers and the journal behind them.

    A copy or a pickled one starts anew.
    """

    def __init__(self) -> None:
        self.counts = CallCounts()
        self.excluded_points: list[Float[np.ndarray, " D"]] = []
        self._how: How | None = None
        self._workers: AbstractWorkers | None = None
        self._journal: Journal | None = None
        self._seconds: float | None = None
        """Per point, of late."""
        self._failures: dict[bytes, int] = {}
        self._excluded_in_a_row = 0
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type["Calls"], tuple[()]]:
        return Calls, ()

    def close(self) -> None:
        """End the processes and close the journal; the next call starts them again."""
        if self._workers is not None:
            self._workers.close()
        if self._journal is not None:
            self._journal.close()
        self._how = self._workers = self._journal = None

    def evaluate(self, how: How, points: Float[np.ndarray, "n D"], needs_gradient: bool) -> Values:
        """Values, and gradients if needed, at the points; NaN where the function was given up."""
        n = len(points)
        batch = _Open(points, needs_gradient, np.full(n, np.nan), np.full((n, how.dim), np.nan))
        with contextlib.nullcontext() if how.plain else self._lock:
            self._prepare(how)
            self._evaluate(how, batch)
        return Values(batch.values, batch.gradients if needs_gradient else None)

    def _evaluate(self, how: How, batch: _Open) -> None:
        """Fill in the batch."""
        pieces = self._unknown(how, batch)
        try:
            if self._workers is None:
                self._here(how, batch, pieces)
            else:
                self._side_by_side(how, batch, pieces, self._workers)
        except KeyboardInterrupt as stop:
            batch.given += stop.evaluations if isinstance(stop, Interrupted) else 0
            raise Interrupted(self._break_off(batch)) from None
        except _CallError as failed:
            batch.given += failed.given
            error = failed.error
            if isinstance(error, TargetError):
                raise TargetError(str(error), self._break_off(batch)) from error
            shape = f"[n, {how.dim}]" if how.batched else f"[{how.dim}]"
            message = (
                f"The target raised {type(error).__name__}: {error} (it is given float64 arrays {shape})."
            )
            raise TargetError(message, self._break_off(batch)) from error
        except TargetError as error:
            error.evaluations = self._break_off(batch)
            raise

    def _prepare(self, how: How) -> None:
        if how.same_workers(self._how):
            return
        self.close()
        self._journal = None if how.journal is None else Journal(how.journal, how.dim)
        call = Call(how.fn, how.gradient, how.batched)
        if how.executor is not None:
            self._workers = ExecutorWorkers(call, how.executor, how.workers, how.timeout)
        elif how.workers is not None or how.timeout is not None:
            self._workers = WorkerPool(call, how.workers or 1, how.timeout)
        self._how = how

    def _unknown(self, how: How, batch: _Open) -> list[Int[np.ndarray, " _"]]:
        """The points that are neither in the journal nor given up, in the pieces that belong together."""
        n, known = len(batch.points), np.zeros(len(batch.points), bool)
        for row, point in enumerate(batch.points):
            found = None if self._journal is None else self._journal.find(point, batch.needs_gradient)
            if found is not None:
                known[row], batch.values[row] = True, found.value
                if batch.needs_gradient and found.gradient is not None:
                    batch.gradients[row] = found.gradient
            elif self._failures and self._failures.get(point.tobytes(), 0) > how.retries:
                known[row] = True
        if self._workers is None:
            size = how.batch_size or n if how.batched else n if self._journal is None else 1
        else:
            size = how.batch_size or (-(-n // _TASKS) if how.batched else 1)
        pieces = np.split(np.arange(n), np.arange(size, n, size)) if n else []
        if not how.batched:
            pieces = [piece[~known[piece]] for piece in pieces]
        # The last digits of a batched function may depend on what belongs together.
        pieces = [piece for piece in pieces if len(piece) and not known[piece].all()]
        asked = sum(len(piece) for piece in pieces)
        if self._journal is not None:
            self._count(from_journal=n - asked)
        return pieces

    def _here(self, how: How, batch: _Open, pieces: list[Int[np.ndarray, " _"]]) -> None:
        """One call after another in this process."""
        call = Call(how.fn, how.gradient, how.batched)
        for rows in pieces:
            outcome = call(batch.points[rows], batch.needs_gradient)
            if isinstance(outcome, Raised):
                raise _CallError(outcome.error, outcome.given)
            batch.given += len(rows)
            self._take(how, batch, rows, outcome)

    # Side by side -------------------------------------------------------------------------------

    def _side_by_side(
        self, how: How, batch: _Open, pieces: list[Int[np.ndarray, " _"]], workers: AbstractWorkers
    ) -> None:
        """Whichever worker is free gets the next task, until every point has its value."""
        left, running = deque(pieces), 0
        while left or running:
            while left and workers.takes():
                rows = self._next(how, batch, left, workers)
                workers.start(Task(rows, batch.points[rows], batch.needs_gradient))
                running += 1
            for ended in workers.wait():
                running -= 1
                left.extendleft(self._ended(how, batch, ended, workers))

    def _next(
        self, how: How, batch: _Open, left: deque[Int[np.ndarray, " _"]], workers: AbstractWorkers
    ) -> Int[np.ndarray, " _"]:
        """The points of the next task: several, if a call is cheap and enough is left for all workers."""
        rows = left.popleft()
        cheap = self._seconds is not None and self._seconds < _TASK_SECONDS / 2
        costly = how.timeout is not None and how.executor is not None  # a task that hangs takes its worker
        fixed = how.batched or how.batch_size is not None
        if fixed or costly or not cheap or int(rows[0]) in batch.alone:
            return rows
        assert self._seconds is not None
        most = len(left) // (_TASKS if workers.number is None else 4 * workers.number)
        size = min(int(_TASK_SECONDS / max(self._seconds, 1e-9)), most)
        if how.timeout is not None:
            size = min(size, int(how.timeout / 4 / max(self._seconds, 1e-9)))
        together = [rows]
        while len(together) < size and left and int(left[0][0]) not in batch.alone:
            together.append(left.popleft())
        return np.concatenate(together)

    def _ended(
        self, how: How, batch: _Open, ended: Ended, workers: AbstractWorkers
    ) -> list[Int[np.ndarray, " _"]]:
        """Take what came of a task; the points to evaluate again, each alone."""
        rows, outcome = ended.task.rows, ended.outcome
        if isinstance(outcome, Answer):
            batch.given += len(rows)
            self._excluded_in_a_row = 0
            self._take(how, batch, rows, outcome)
            return []
        if isinstance(outcome, Raised):
            raise _CallError(outcome.error, outcome.given)
        if not outcome.began:
            return [rows]
        self._count(timed_out=int(outcome.hung), died=int(not outcome.hung))
        again = [rows[i : i + 1] for i in range(len(rows))]
        batch.alone.update(int(row) for row in rows)
        if len(rows) > 1:  # it is not known which
            return again
        key = batch.points[rows[0]].tobytes()
        self._failures[key] = self._failures.get(key, 0) + 1
        if self._failures[key] <= how.retries:
            return again
        batch.given += 1
        self._exclude(batch.points[rows[0]], how, outcome, workers)
        return []

    def _exclude(
        self, point: Float[np.ndarray, " D"], how: How, lost: Lost, workers: AbstractWorkers
    ) -> None:
        self._count(excluded=1)
        self._excluded_in_a_row += 1
        self.excluded_points.append(point.copy())
        what = "hung" if lost.hung else "died"
        times = f"{how.retries + 1} times" if how.retries else "once"
        where = np.array2string(point, precision=6, threshold=12, separator=", ")
        text = f"The target {what} {times} at the point {where} ({lost.why})"
        if self._excluded_in_a_row > _EXCLUDED_IN_A_ROW + (workers.number or 0):
            raise TargetError(
                f"{text}, and so it was at the {self._excluded_in_a_row - 1} points before it: correct the "
                "target, or give it more time (timeout=)."
            )
        logger.warning("%s; the point is excluded.", text)

    def _take(self, how: How, batch: _Open, rows: Int[np.ndarray, " _"], answer: Answer) -> None:
        """Check an answer and keep it, in the journal too."""
        n = len(rows)
        found = how.parse(answer, n, batch.needs_gradient)
        for i, row in enumerate(rows) if self._journal is not None else ():
            assert self._journal is not None
            point = batch.points[row]
            known = self._journal.find(point, batch.needs_gradient)
            slope = None if found.gradients is None else found.gradients[i]
            if known is None:
                self._journal.add(point, found.values[i], slope, answer.seconds / n)
            else:  # the piece was evaluated for other points of it
                found.values[i] = known.value
                if found.gradients is not None and known.gradient is not None:
                    found.gradients[i] = known.gradient
        batch.values[rows] = found.values
        if batch.needs_gradient and found.gradients is not None:
            batch.gradients[rows] = found.gradients
        each = answer.seconds / n
        self._seconds = each if self._seconds is None else (1 - _RECENT) * self._seconds + _RECENT * each
        self._count(evaluated=n, seconds=answer.seconds)

    def _break_off(self, batch: _Open) -> int:
        """Give up the tasks that are running; the points that the function has been given."""
        return batch.given + (0 if self._workers is None else self._workers.break_off())

    def _count(self, **more: float) -> None:
        added = {name: getattr(self.counts, name) + value for name, value in more.items()}
        self.counts = self.counts._replace(**added)


class _CallError(Exception):
    """An error that the function raised, after so many points of its task."""

    def __init__(self, error: BaseException, given: int) -> None:
        super().__init__()
        self.error, self.given = error, given
