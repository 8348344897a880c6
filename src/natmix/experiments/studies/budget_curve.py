"""The curve of a trial's ELBO over its budget, and the rule that prunes it by that."""

import math
from collections.abc import Sequence

from natmix.engine.limits import Limits
from natmix.experiments.runs.elbo_evaluation import EvaluationTimes
from natmix.experiments.runs.rows import ElboRow

PRUNED = "pruned"
"""Why a trial stopped that a study has ended early."""
_EVALUATIONS_PER_RUNG = 4
_MOST_ITERATIONS = 16
"""Between two iterations after which the ELBO may be evaluated."""


class BudgetCurve:
    """The smallest -ELBO of a trial by the end of each part of its budget.

    Attributes:
        values: so far; the parts that are over. None before the first evaluation of the ELBO.
    """

    def __init__(self, rungs: int, limits: Limits) -> None:
        self.values: list[float | None] = []
        self._rungs, self._limits = rungs, limits
        self._best: float | None = None

    def add(self, iterations: int, evaluations: int, seconds: float, neg_elbo: float) -> None:
        """Take note of an evaluation of the ELBO."""
        share = self._limits.used_share(iterations, evaluations, seconds)
        over = min(self._rungs, math.floor(share * self._rungs + 1e-9))
        at_end = math.isclose(share * self._rungs, over, rel_tol=1e-9)
        while len(self.values) < over - at_end:
            self.values.append(self._best)
        if math.isfinite(neg_elbo) and (self._best is None or neg_elbo < self._best):
            self._best = neg_elbo
        if at_end and len(self.values) < over:
            self.values.append(self._best)

    def is_pruned(self, limits: Sequence[float | None]) -> bool:
        """Whether the last part that is over ended above its bar."""
        last = len(self.values)
        if not 0 < last <= len(limits):
            return False
        bar, value = limits[last - 1], self.values[last - 1]
        return bar is not None and value is not None and value > bar


class BarJudge:
    """Ends a trial at an evaluation of its ELBO that shows it above its bar."""

    def __init__(self, rungs: int, limits: Limits, bars: Sequence[float | None]) -> None:
        self._curve, self._bars = BudgetCurve(rungs, limits), bars

    def __call__(self, row: ElboRow) -> str | None:
        self._curve.add(row["iterations"], row["evaluations"], row["seconds"], row["neg_elbo"])
        return PRUNED if self._curve.is_pruned(self._bars) else None


def evaluation_times(rungs: int, limits: Limits) -> EvaluationTimes | None:
    """When the ELBO of a trial that may be pruned is evaluated, so that the clock does not decide its end.

    None if there is only a limit of time: the clock decides in any case.
    """
    if limits.max_iterations is None and limits.max_evaluations is None:
        return None
    parts = _EVALUATIONS_PER_RUNG * rungs
    every = _MOST_ITERATIONS
    if limits.max_iterations is not None:
        every = min(every, max(1, limits.max_iterations // parts))
    return EvaluationTimes(every, parts)
