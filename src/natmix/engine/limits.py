"""Limits of a run: iterations, evaluations, time."""

import dataclasses
import math
from typing import Any

import numpy as np

from natmix.checks import as_int


@dataclasses.dataclass(frozen=True)
class Limits:
    """When a run ends; None is no limit.

    Attributes:
        max_seconds: of the run's clock: compilation counts, evaluations of the ELBO and checkpoints do not.
        max_evaluations: of the target by the algorithm, never exceeded.
        max_iterations: steps of the algorithm.
        until: end at the first evaluation of the ELBO that finds a -ELBO of at most this (``natmix run``).
        max_run_seconds: of the clock less compilation, which the first seed pays for the others.
        until_converged: whether the stopping rule (`natmix.engine.convergence`) may end it earlier.
    """

    max_seconds: float | None = None
    max_evaluations: int | None = None
    max_iterations: int | None = None
    until: float | None = None
    max_run_seconds: float | None = None
    until_converged: bool = False

    def __post_init__(self) -> None:
        for name in ("max_iterations", "max_evaluations"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, as_int(value, name))
        for name in ("max_seconds", "max_run_seconds"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise ValueError(f"{name} must be a positive number, got {value!r}.")
        if self.until is not None and not (is_number(self.until) and not math.isnan(self.until)):
            raise ValueError("until must be a number, the -ELBO to stop at.")

    @property
    def endless(self) -> bool:
        """Whether no limit is certain to end a run: an ELBO or convergence may never be reached."""
        certain = (self.max_seconds, self.max_evaluations, self.max_iterations, self.max_run_seconds)
        return all(limit is None for limit in certain)

    def completed_by(self, usual: "Limits") -> "Limits":
        """These limits, with those of ``usual`` where there is none."""
        mine, other = dataclasses.asdict(self), dataclasses.asdict(usual)
        return Limits(**{k: other[k] if v is None else v for k, v in mine.items()})

    def reached(self, iterations: int, seconds: float, compile_seconds: float) -> str | None:
        """The name of the limit that these numbers reach, if any; evaluations are checked beforehand."""
        if self.max_iterations is not None and iterations >= self.max_iterations:
            return "max_iterations"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return "max_seconds"
        if self.max_run_seconds is not None and seconds - compile_seconds >= self.max_run_seconds:
            return "max_run_seconds"
        return None

    def used_share(self, iterations: int, evaluations: int, seconds: float) -> float:
        """How much of the budget is used: the largest share of a limit."""
        used = [
            (iterations, self.max_iterations),
            (evaluations, self.max_evaluations),
            (seconds, self.max_seconds),
            (seconds, self.max_run_seconds),
        ]
        return max((number / limit for number, limit in used if limit), default=0.0)

    def seconds_left(self, seconds: float, compile_seconds: float) -> float:
        """Seconds until the first time limit."""
        left = [math.inf]
        if self.max_seconds is not None:
            left.append(self.max_seconds - seconds)
        if self.max_run_seconds is not None:
            left.append(self.max_run_seconds - (seconds - compile_seconds))
        return min(left)


def is_number(value: Any) -> bool:
    """Whether it is a real number and not a bool."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
