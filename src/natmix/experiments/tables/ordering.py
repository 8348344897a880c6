"""Whether the algorithms have the paper's order."""

import dataclasses
from collections.abc import Mapping
from itertools import permutations

from natmix.experiments.tables.paper import PaperNumber
from natmix.experiments.tables.summary import Summary, rounded

YES, WITHIN, NO = "yes", "no, within errors", "no"
_SLACK = 1e-9


@dataclasses.dataclass(frozen=True)
class Ordering:
    """The algorithms on one problem.

    Attributes:
        first: for every other algorithm, whether SAMTRON is not above it: yes, no within errors, or no.
        pairs: how many pairs are clearly apart in the paper (their intervals do not meet), of those here.
        by_means: how many of them are in the paper's order here, by means at two decimals.
        clearly: how many of these are clearly apart here too; a pair with a single seed is not.
        reversed: how many pairs are reversed here, by means at two decimals.
    """

    first: dict[str, str]
    pairs: int
    by_means: int
    clearly: int
    reversed: int


def ordering(summaries: Mapping[str, Summary], leader: str = "SAMTRON") -> Ordering:
    """The ordering of the algorithms on one problem, by codename."""
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
    return Ordering(
        first,
        pairs=len(apart),
        by_means=sum(_above(a, b) < -_SLACK for a, b in apart),
        clearly=sum(_clearly_in_order(a, b) for a, b in apart),
        reversed=sum(_above(a, b) > _SLACK for a, b in apart),
    )


def not_above(a: Summary, b: Summary) -> str:
    """Whether a's mean is at most b's, at two decimals, or at least their intervals meet."""
    above = _above(a, b)
    if above <= _SLACK:
        return YES
    return WITHIN if above <= a.neg_elbo.interval + b.neg_elbo.interval else NO


def _above(a: Summary, b: Summary) -> float:
    """How far a's mean is above b's, at two decimals."""
    return rounded(a.neg_elbo.mean) - rounded(b.neg_elbo.mean)


def _clearly_in_order(a: Summary, b: Summary) -> bool:
    """Whether a is below b and their intervals do not meet; unknown for single seeds."""
    mine, other = a.neg_elbo, b.neg_elbo
    if min(mine.number, other.number) < 2:
        return False
    return _above(a, b) < -_SLACK and mine.mean + mine.three_se < other.mean - other.three_se


def _clearly_below(a: PaperNumber, b: PaperNumber) -> bool:
    return a.mean + a.three_se < b.mean - b.three_se - _SLACK
