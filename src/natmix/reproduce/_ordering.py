"""Whether the algorithms come in the paper's order."""

import dataclasses
from collections.abc import Mapping
from itertools import permutations

from natmix.reproduce._paper import PaperNumber
from natmix.reproduce._summary import Summary, rounded

YES, WITHIN, NO = "yes", "within errors", "no"
_SLACK = 1e-9


@dataclasses.dataclass(frozen=True)
class Ordering:
    """The algorithms on one problem.

    Attributes:
        first: for every other algorithm, whether SAMTRON is not above it: yes, within errors or no.
        clear: how many pairs are clearly apart in the paper (their intervals do not meet), of those here.
        kept: how many of them are in the paper's order here, within errors.
    """

    first: dict[str, str]
    clear: int
    kept: int


def ordering(summaries: Mapping[str, Summary], leader: str = "SAMTRON") -> Ordering:
    """Of the algorithms on one problem, by codename."""
    first: dict[str, str] = {}
    if leader in summaries:
        first = {
            name: not_above(summaries[leader], other) for name, other in summaries.items() if name != leader
        }
    apart = [
        (a, b)
        for a, b in permutations(summaries.values(), 2)
        if a.paper is not None and b.paper is not None and _clearly_below(a.paper, b.paper)
    ]
    return Ordering(first, len(apart), sum(not_above(a, b) != NO for a, b in apart))


def not_above(a: Summary, b: Summary) -> str:
    """Whether a's mean is at most b's, at two decimals, or at least their intervals meet."""
    above = rounded(a.neg_elbo.mean) - rounded(b.neg_elbo.mean)
    if above <= _SLACK:
        return YES
    return WITHIN if above <= a.neg_elbo.interval + b.neg_elbo.interval else NO


def _clearly_below(a: PaperNumber, b: PaperNumber) -> bool:
    return a.mean + a.three_se < b.mean - b.three_se - _SLACK
