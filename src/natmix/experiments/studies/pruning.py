"""When a trial ends early: its curve of the ELBO is worse than those of earlier trials.

The budget has ``rungs`` equal parts. The bars of a trial, one at the end of each part, are set when it is
planned, from the curves of the earlier settings of its cell. A trial is therefore judged the same whoever
runs it, and needs no connection to others. `natmix.experiments.studies.budget_curve` judges it while it runs.
"""

import math
from collections.abc import Sequence

import numpy as np

from natmix.experiments.studies.definition import PruningRules
from natmix.experiments.studies.study_folder import TrialOutcome


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
