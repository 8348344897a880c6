"""How many chains a diagnosis starts without being asked: what a small part of the fit's price pays for.

There are none where they cannot help: for a target whose values are random, which no chain leaves as it is,
and for one without gradients, where short chains found 3 of 160 necks (results/README.md).
"""

from typing import TYPE_CHECKING

from natmix.diagnostics._explore import BRIEF_STEPS, chain_evaluations
from natmix.targets import JaxTarget

if TYPE_CHECKING:
    from natmix._result import Result

PRICE = 0.1
"""Evaluations of the chains, over those of the fit, at most."""
FEWEST_BRIEF_CHAINS = 200
"""With fewer none are started: 100 missed most of the necks they were shown, and refused one sound fit in a
hundred (results/README.md)."""
MOST_BRIEF_CHAINS = 1000
"""More see little more."""

_UNFINISHED = {"failed": "the target failed in the fit", "interrupted": "the fit was interrupted"}


def affordable_chains(result: "Result") -> tuple[int, str]:
    """How many chains of `BRIEF_STEPS` to start, and if none why."""
    if result.stopped in _UNFINISHED:
        return 0, _UNFINISHED[result.stopped]
    samples = 0 if result.draws is None else len(result.draws)
    budget = PRICE * result.counts.evaluations
    numbers = range(MOST_BRIEF_CHAINS, FEWEST_BRIEF_CHAINS - 1, -1)
    paid = (n for n in numbers if samples and chain_evaluations(n, BRIEF_STEPS, samples) <= budget)
    chains = next(paid, 0)
    if not chains:
        return 0, f"{FEWEST_BRIEF_CHAINS} of them would cost more than {PRICE:.0%} of the fit's evaluations"
    if result.target is None:
        return 0, "the target is not known here"
    if isinstance(result.target, JaxTarget) and result.target.stochastic:
        return 0, "the target's values are random"
    if not result.target.has_gradient:
        return 0, "without gradients short ones get nowhere"
    return chains, ""
