"""How many chains and climbs a diagnosis starts without being asked: what a part of the fit's price pays for.

There are none where they cannot help: for a target whose values are random, which no chain leaves as it is,
and for one without gradients, where short chains found 3 of 160 necks (results/README.md).
"""

from typing import TYPE_CHECKING

from natmix.diagnostics.exploration import BRIEF_STEPS, chain_evaluations
from natmix.targets import JaxTarget

if TYPE_CHECKING:
    from natmix.result.result import Result

PRICE = 0.1
"""Evaluations of the chains, over those of the fit, at most, and those of the climbs. Of the climbs also the
seconds over those of the fit: they go one by one, where a fit may evaluate many points at once."""
FEWEST_BRIEF_CHAINS = 200
"""With fewer none are started: 100 missed most of the necks they were shown, and refused one sound fit in a
hundred (results/README.md)."""
MOST_BRIEF_CHAINS = 1000
"""More see little more."""

MOST_CLIMBS, FEWEST_CLIMBS = 32, 10
"""With 10 there are two for each width of the start region (`_missed.REACH`)."""
CLIMB = 100
"""Evaluations that a climb takes, about: 27 for a logistic regression with 10 coefficients."""

_SECOND = 1.0
"""Climbs may take that long after any fit."""

_UNFINISHED = {"failed": "the target failed in the fit", "interrupted": "the fit was interrupted"}


def affordable_chains(result: "Result") -> tuple[int, str]:
    """How many chains of `BRIEF_STEPS` to start, and if none why."""
    samples = 0 if result.draws is None else len(result.draws)
    budget = PRICE * result.counts.evaluations
    numbers = range(MOST_BRIEF_CHAINS, FEWEST_BRIEF_CHAINS - 1, -1)
    paid = (n for n in numbers if samples and chain_evaluations(n, BRIEF_STEPS, samples) <= budget)
    dear = f"{FEWEST_BRIEF_CHAINS} of them would cost more than {PRICE:.0%} of the fit's evaluations"
    return _unless(result, next(paid, 0), dear, "without gradients short ones get nowhere")


def affordable_climbs(result: "Result") -> tuple[int, str]:
    """How many climbs to make in search of other modes, and if none why."""
    climbs = min(climb_evaluations(result) // CLIMB, MOST_CLIMBS)
    dear = f"{FEWEST_CLIMBS} climbs would cost more than {PRICE:.0%} of the fit's evaluations"
    paid = climbs if climbs >= FEWEST_CLIMBS else 0
    return _unless(result, paid, dear, "the target has no gradients to climb by")


def climb_evaluations(result: "Result") -> int:
    """That climbs may take."""
    return int(PRICE * result.counts.evaluations)


def climb_seconds(result: "Result") -> float:
    """After which no other climb begins."""
    return max(PRICE * result.timings.total, _SECOND)


def _unless(result: "Result", paid: int, dear: str, no_gradient: str) -> tuple[int, str]:
    """As many as are paid for, unless there is a reason for none."""
    target = result.target
    if result.stopped in _UNFINISHED:
        return 0, _UNFINISHED[result.stopped]
    if not paid:
        return 0, dear
    if target is None:
        return 0, "the target is not known here"
    if isinstance(target, JaxTarget) and target.stochastic:
        return 0, "the target's values are random"
    return (paid, "") if target.has_gradient else (0, no_gradient)
