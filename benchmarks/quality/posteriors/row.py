"""A row of the results: one method, one seed, samples as they are or corrected."""

import dataclasses
from typing import Any

import numpy as np

from posteriors.measures import errors
from posteriors.outcome import Outcome
from posteriors.problem import Problem, Truth


@dataclasses.dataclass(frozen=True)
class Row:
    """Numbers of one row.

    Attributes:
        problem: its name.
        method: its name.
        draws: "raw" or "corrected"
        seed: of the run.
        limit: of natmix's evaluations in the fit; 0 if it stopped by itself.
        evaluations: of the target, for raw samples and their correction together.
        seconds: of both.
        mean_error: the largest error of a mean in true standard deviations.
        sd_ratio: the worst ratio of standard deviations.
        elbo_error: ELBO minus the true log evidence.
        evidence_error: log evidence by importance sampling minus the true one.
        evidence_se: the standard error the method itself gives to it.
        k_hat: of the importance weights.
        verdict: natmix's.
        modes: that natmix counts.
        smallest_share: of the images of a region that the posterior has in equal shares.
    """

    problem: str
    method: str
    draws: str
    seed: int
    limit: int
    evaluations: int
    seconds: float
    mean_error: float
    sd_ratio: float
    elbo_error: float
    evidence_error: float
    evidence_se: float
    k_hat: float
    verdict: str
    modes: int
    smallest_share: float

    @classmethod
    def read(cls, line: dict[str, str]) -> "Row":
        """From text."""
        kinds = {f.name: f.type for f in dataclasses.fields(cls)}
        return cls(**{name: kinds[name](line[name]) for name in FIELDS})  # type: ignore[operator]

    @property
    def key(self) -> tuple[str, int, str, str, int]:
        """What no two rows have in common."""
        return self.problem, self.limit, self.method, self.draws, self.seed

    def written(self) -> dict[str, Any]:
        """As text, floats with four digits."""
        values = dataclasses.asdict(self)
        return {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in values.items()}

    def line(self) -> str:
        """For the terminal."""
        return (
            f"{self.seed} {self.method:32.32} {self.draws:9} {self.evaluations:10,} {self.seconds:6.1f} s  "
            f"mean {self.mean_error:7.3f}  sd {self.sd_ratio:7.3f}  ELBO {self.elbo_error:9.4f}  "
            f"log Z {self.evidence_error:8.4f} ± {self.evidence_se:.4f}  k {self.k_hat:5.2f}  "
            f"{self.verdict} {self.modes or ''} share {self.smallest_share:.3f}"
        )


FIELDS = [f.name for f in dataclasses.fields(Row)]


def rows_of(problem: Problem, truth: Truth, seed: int, limit: int, o: Outcome) -> list[Row]:
    """Raw samples, and corrected ones."""
    model, out = problem.compiled(), []
    for draws, x, weights in (("raw", o.raw, None), ("corrected", o.corrected, o.weights)):
        found = errors(problem.flat(model.constrain(x)), weights, truth)
        share = np.nan if problem.symmetry is None else float(problem.symmetry.shares(x, weights).min())
        out.append(
            Row(
                problem=problem.name,
                method=o.method,
                draws=draws,
                seed=seed,
                limit=limit,
                evaluations=o.evaluations,
                seconds=o.seconds,
                mean_error=found.mean,
                sd_ratio=found.sd_ratio,
                elbo_error=o.elbo - truth.log_evidence,
                evidence_error=o.log_evidence - truth.log_evidence,
                evidence_se=o.log_evidence_se,
                k_hat=o.k_hat,
                verdict=o.verdict,
                modes=o.modes,
                smallest_share=share,
            )
        )
    return out


def exact_rows(problem: Problem, truth: Truth, seed: int, n: int = 20_000) -> list[Row]:
    """What as many independent samples of the posterior give: no method can be expected to do better."""
    if problem.exact is None:
        return []
    found = errors(problem.exact(np.random.default_rng(seed), n), None, truth)
    nan = float("nan")
    return [Row(problem.name, EXACT, "raw", seed, 0, 0, 0.0, *found, nan, nan, nan, nan, "", 0, nan)]


EXACT = "independent samples of the posterior"
