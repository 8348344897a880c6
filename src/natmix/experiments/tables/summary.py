"""Means over the seeds of a run, compared with the paper's."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from natmix.experiments.runs import Run, SeedRun
from natmix.experiments.tables.paper import SECONDARY, PaperNumber, paper_number
from natmix.experiments.tables.saved_tables import TIME_COLUMNS

DECIMALS = 2
"""Decimals that the paper prints, at which numbers are compared."""

_SLACK = 1e-9
_COMPILED = 0.1


@dataclasses.dataclass(frozen=True)
class Statistic:
    """A mean over seeds and three standard errors, 3 std(ddof=1) / sqrt(n); NaN for a single seed."""

    mean: float
    three_se: float
    number: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Statistic":
        """The interval of at least one value."""
        known = np.asarray(values, float)
        n = len(known)
        with np.errstate(invalid="ignore"):  # of an infinite -ELBO
            error = 3 * float(known.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
        return cls(float(known.mean()), error, n)

    @property
    def interval(self) -> float:
        """Three standard errors, 0 if unknown."""
        return self.three_se if math.isfinite(self.three_se) else 0.0


@dataclasses.dataclass(frozen=True)
class Summary:
    """One algorithm on one problem; means are over the finished seeds.

    Attributes:
        codename: the algorithm.
        problem: the problem.
        seeds: those that have finished.
        neg_elbo: -ELBO.
        paper: the paper's -ELBO.
        secondary: the problem's second metric, over the seeds that have it.
        evaluations: of the target.
        iterations: of the algorithm.
        seconds: with compilation, which seeds that came later may not have needed.
        compile_seconds: of them, for compilation.
        components: of the final mixtures.
        reached: how many seeds reached the paper's mean at two decimals, in any evaluation of the ELBO.
        first_to_paper: seconds of the first seed until then, with compilation; NaN if it used another seed's
            programs, infinite if it did not reach it.
        time_to_paper: median over the seeds of the seconds until then without compilation; infinite if
            half did not reach it.
        device: what it ran on.
    """

    codename: str
    problem: str
    seeds: tuple[int, ...]
    neg_elbo: Statistic
    paper: PaperNumber | None
    secondary: Statistic | None
    evaluations: float
    iterations: float
    seconds: float
    compile_seconds: float
    components: float
    reached: int
    first_to_paper: float
    time_to_paper: float
    device: str

    @property
    def not_above(self) -> bool | None:
        """Whether the mean is at most the paper's plus its interval, at two decimals."""
        if self.paper is None:
            return None
        return rounded(self.neg_elbo.mean) <= self.paper.mean + self.paper.three_se + _SLACK

    @property
    def clearly_below(self) -> bool:
        """Whether it is so much lower than the paper's that the intervals do not meet."""
        if self.paper is None or len(self.seeds) < 2:
            return False
        top = rounded(self.neg_elbo.mean) + rounded(self.neg_elbo.interval)
        return top < self.paper.mean - self.paper.three_se - _SLACK


def summarise(run: Run) -> Summary | None:
    """The numbers of a run, None while no seed has finished."""
    finals = {n: seed.final for n, seed in run.finished.items() if seed.final is not None}
    if not finals:
        return None
    paper = paper_number(run.codename, run.problem)
    times = [time_to(run.seeds[n], paper.mean) if paper else math.nan for n in finals]
    first = min(finals)

    def mean(name: str) -> float:
        return float(np.mean([final[name] for final in finals.values()]))

    return Summary(
        codename=run.codename,
        problem=run.problem,
        seeds=tuple(finals),
        neg_elbo=Statistic.of([final["neg_elbo"] for final in finals.values()]),
        paper=paper,
        secondary=metric_of(list(finals.values()), SECONDARY.get(run.problem, "accuracy")),
        evaluations=mean("evaluations"),
        iterations=mean("iterations"),
        seconds=mean("seconds"),
        compile_seconds=mean("compile_seconds"),
        components=mean("components"),
        reached=int(np.isfinite(times).sum()),
        first_to_paper=time_to(run.seeds[first], paper.mean, compilation=True)
        if paper and _compiled(first, finals)
        else math.nan,
        time_to_paper=float(np.median(times)),
        device="; ".join(dict.fromkeys(final["device"] for final in finals.values())),
    )


def metric_of(finals: Sequence[dict[str, Any]], name: str) -> Statistic | None:
    """The interval of a metric over the seeds that have it; None if none has."""
    known = [final[name] for final in finals if final.get(name) is not None]
    return Statistic.of(known) if known else None


def time_to(seed: SeedRun, level: float, *, compilation: bool = False) -> float:
    """Seconds until an evaluated -ELBO was at most this at two decimals; infinite if none was.

    For a seed of a saved table: what the table says, for the paper's level only.
    """
    metrics = seed.metrics
    if TIME_COLUMNS[0] in metrics:
        return float(metrics[TIME_COLUMNS[0] if compilation else TIME_COLUMNS[1]][0])
    low = np.flatnonzero(np.round(metrics["neg_elbo"].astype(float), DECIMALS) <= level + _SLACK)
    if not low.size:
        return math.inf
    at = low[0]
    return float(metrics["seconds"][at] - (0 if compilation else metrics["compile_seconds"][at]))


def _compiled(seed: int, finals: Mapping[int, Mapping[str, Any]]) -> bool:
    """Whether a seed compiled its programs: later ones of the same process need next to no time for it."""
    longest = max(final["compile_seconds"] for final in finals.values())
    return finals[seed]["compile_seconds"] >= _COMPILED * longest


def rounded(value: float) -> float:
    """At the paper's decimals, without a negative zero."""
    return round(value, DECIMALS) + 0.0 if math.isfinite(value) else value
