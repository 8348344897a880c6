"""When a trial ends early: its curve of the ELBO is worse than those of earlier trials.

The budget has ``rungs`` equal parts. The bars of a trial, one at the end of each part, are set when it is
planned, from the curves of the earlier settings of its cell. A trial is therefore judged the same whoever
runs it, and needs no connection to others.
"""

import math
from collections.abc import Sequence

import numpy as np

from natmix.engine.limits import Limits
from natmix.experiments.studies.definition import PruningRules
from natmix.experiments.studies.study_folder import TrialOutcome
from natmix.experiments.studies.trial_runner import TrialProgress


def used_share(limits: Limits, iterations: int, evaluations: int, seconds: float) -> float:
    """How much of the budget is used: the largest share of a limit."""
    used = [
        (iterations, limits.max_iterations),
        (evaluations, limits.max_evaluations),
        (seconds, limits.max_seconds),
        (seconds, limits.max_run_seconds),
    ]
    return max((number / limit for number, limit in used if limit), default=0.0)


def bars(rules: PruningRules, position: int, earlier: Sequence[TrialOutcome]) -> list[float | None]:
    """The -ELBO above which a trial is pruned at the end of each part of the budget but the last.

    "median": the median of the curves of earlier trials that came so far. "hyperband": the rungs 1, f, f^2,
    ... of the parts; at each, one of f trials goes on. The position of the setting decides from which rung
    on, so that some trials have time to be slow at first.

    Args:
        rules: of the study.
        position: of the setting in its cell.
        earlier: outcomes of trials of earlier settings, on the same seed.
    """
    parts = rules.rungs - 1
    finished = [outcome for outcome in earlier if outcome.state == "complete"]
    if rules.kind == "none" or len(finished) < rules.startup:
        return [None] * parts
    curves = [outcome.curve for outcome in earlier]
    share = 0.5 if rules.kind == "median" else 1 / rules.factor
    at = range(1, rules.rungs) if rules.kind == "median" else _hyperband_rungs(rules, position)
    return [_bar(curves, rung, share) if rung in at else None for rung in range(1, rules.rungs)]


def _hyperband_rungs(rules: PruningRules, position: int) -> list[int]:
    brackets = max(1, math.ceil(math.log(rules.rungs, rules.factor)))
    return [rules.factor**k for k in range(position % brackets, brackets) if rules.factor**k < rules.rungs]


def _bar(curves: Sequence[Sequence[float | None]], rung: int, share: float) -> float | None:
    reached = [curve[rung - 1] for curve in curves if len(curve) >= rung]
    known = [value for value in reached if value is not None and math.isfinite(value)]
    return float(np.quantile(known, share)) if len(known) > 1 else None


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
        share = used_share(self._limits, iterations, evaluations, seconds)
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


def add_progress(curve: BudgetCurve, progress: TrialProgress) -> None:
    """Take note of how far a trial is."""
    curve.add(progress.iterations, progress.evaluations, progress.seconds, -progress.elbo)
