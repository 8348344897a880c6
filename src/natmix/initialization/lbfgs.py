"""Maximise a log density by L-BFGS, and keep the path."""

import contextlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.initialization.evaluator import BudgetSpentError, TargetEvaluator

_MAX_STEPS = 300
_UNUSABLE = 1e30
"""The objective where the log density is -inf, NaN or +inf: the line search turns away from it."""


class LbfgsPath(NamedTuple):
    """The iterates of an L-BFGS run, the last one highest.

    Attributes:
        x: the points.
        gradient: of the log density.
        log_density: at each point.
        finished: whether the run finished before the budget of evaluations was spent.
    """

    x: Float[np.ndarray, "S D"]
    gradient: Float[np.ndarray, "S D"]
    log_density: Float[np.ndarray, " S"]
    finished: bool = True


def lbfgs_run(evaluator: TargetEvaluator, start: Float[np.ndarray, " D"]) -> LbfgsPath:
    """Run L-BFGS from ``start``; the path is one point if no step improves on it."""
    from scipy.optimize import minimize  # a dependency of JAX

    seen: list[tuple[np.ndarray, float, np.ndarray]] = []
    iterates: list[int] = []

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = evaluator.with_gradient(x[None])
        v, g = float(value[0]), gradient[0]
        seen.append((x.copy(), v, g))
        if not (np.isfinite(v) and np.all(np.isfinite(g))):
            return _UNUSABLE, np.zeros_like(x)
        return -v, -g

    def record(x: np.ndarray) -> None:
        for i in range(len(seen) - 1, -1, -1):
            if np.array_equal(seen[i][0], x):
                iterates.append(i)
                return

    finished = False
    with contextlib.suppress(BudgetSpentError):
        minimize(
            objective,
            np.asarray(start, float),
            jac=True,
            method="L-BFGS-B",
            callback=record,
            options={"maxiter": _MAX_STEPS, "maxcor": 10, "ftol": 1e-10, "gtol": 1e-6},
        )
        finished = True
    if not seen:
        raise BudgetSpentError
    usable = [i for i in (0, *iterates) if np.isfinite(seen[i][1]) and np.all(np.isfinite(seen[i][2]))]
    x, value, gradient = zip(*(seen[i] for i in usable or [0]), strict=True)
    return LbfgsPath(np.stack(x), np.stack(gradient), np.array(value), finished)
