"""What evaluates tasks side by side: processes of one's own, or an executor."""

import abc
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from natmix.targets.calls import Answer, Raised


class Task(NamedTuple):
    """Some points for one worker.

    Attributes:
        rows: their places in the batch.
        points: the points.
        needs_gradient: whether their gradients are needed.
    """

    rows: Int[np.ndarray, " n"]
    points: Float[np.ndarray, "n D"]
    needs_gradient: bool


class Lost(NamedTuple):
    """A task that brought no answer.

    Attributes:
        hung: whether it took too long; otherwise its worker died.
        why: in words.
        began: whether it had begun; if not, nothing is wrong with its points.
    """

    hung: bool
    why: str
    began: bool = True


class Ended(NamedTuple):
    """A task and what came of it."""

    task: Task
    outcome: Answer | Raised | Lost


class AbstractWorkers(abc.ABC):
    """Workers that take tasks one after the other."""

    @property
    @abc.abstractmethod
    def number(self) -> int | None:
        """How many there are; None if unknown."""

    @abc.abstractmethod
    def takes(self) -> bool:
        """Whether another task may be started now."""

    @abc.abstractmethod
    def start(self, task: Task) -> None:
        """Start a task."""

    @abc.abstractmethod
    def wait(self) -> list[Ended]:
        """Wait until something happens; the tasks that have ended, if any."""

    @abc.abstractmethod
    def break_off(self) -> int:
        """Give up all tasks that were started; the points that were, or will be, evaluated nevertheless."""

    @abc.abstractmethod
    def close(self) -> None:
        """End what was started for this target."""
