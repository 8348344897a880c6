"""The budget of a default diagnosis: as many Markov chains and L-BFGS runs as cost a tenth of the fit.

There are none where they cannot help: for a target with random values, and no chains for one without
gradients, where short chains found 3 of 160 necks (results/README.md).
"""

import dataclasses

from natmix.diagnostics.exploration import SHORT_CHAIN_STEPS, chain_evaluations
from natmix.targets import AbstractTarget, JaxTarget

COST_SHARE = 0.1
"""The chains may take this share of the fit's evaluations, and so may the L-BFGS runs. The runs are also
limited to this share of the fit's seconds: they go one by one, where a fit may evaluate in batches."""
MIN_CHAINS = 200
"""With fewer none are started: 100 missed most of the necks in our tests, and rejected one sound fit in a
hundred (results/README.md)."""
MAX_CHAINS = 1000
"""More chains see little more."""
MAX_RUNS, MIN_RUNS = 32, 10
"""L-BFGS runs; with 10 there are two for each width of the initial region (`mode_search.REACH`)."""
EVALUATIONS_PER_RUN = 100
"""About what an L-BFGS run takes: 27 for a logistic regression with 10 coefficients."""

_MIN_SECONDS = 3.0
"""L-BFGS runs may take that long after any fit."""

_UNFINISHED = {"failed": "the target failed in the fit", "interrupted": "the fit was interrupted"}


@dataclasses.dataclass(frozen=True)
class DiagnosticBudget:
    """What the default diagnosis of a fit may cost.

    Attributes:
        fit_evaluations: of the target, by the fit.
        fit_seconds: that the fit took.
        samples: of the mixture, with known target density.
        stopped: why the fit ended, as in `Result.stopped`.
        target: to be evaluated; None if it is not known.
    """

    fit_evaluations: int
    fit_seconds: float
    samples: int
    stopped: str
    target: AbstractTarget | None

    @property
    def run_evaluations(self) -> int:
        """The most evaluations that all L-BFGS runs may take together.

        A fit that has converged may be too short for a share of it to be enough: it gets `MIN_RUNS`.
        """
        least = MIN_RUNS * EVALUATIONS_PER_RUN if self.stopped == "converged" else 0
        return max(int(COST_SHARE * self.fit_evaluations), least)

    @property
    def run_seconds(self) -> float:
        """The time after which no other L-BFGS run starts."""
        return max(COST_SHARE * self.fit_seconds, _MIN_SECONDS)

    def chains(self) -> tuple[int, str]:
        """How many chains of `SHORT_CHAIN_STEPS` to start, and why none."""
        budget = COST_SHARE * self.fit_evaluations
        numbers = range(MAX_CHAINS, MIN_CHAINS - 1, -1)
        affordable = (
            n
            for n in numbers
            if self.samples and chain_evaluations(n, SHORT_CHAIN_STEPS, self.samples) <= budget
        )
        expensive = f"{MIN_CHAINS} of them would cost more than {COST_SHARE:.0%} of the fit's evaluations"
        number, why = self._unless(next(affordable, 0), expensive)
        if number and self.target is not None and not self.target.has_gradient:
            return 0, "without gradients short chains do not get far"
        return number, why

    def runs(self) -> tuple[int, str]:
        """How many runs to make in search of other modes, and why none."""
        runs = min(self.run_evaluations // EVALUATIONS_PER_RUN, MAX_RUNS)
        expensive = f"{MIN_RUNS} runs would cost more than {COST_SHARE:.0%} of the fit's evaluations"
        return self._unless(runs if runs >= MIN_RUNS else 0, expensive)

    def _unless(self, number: int, expensive: str) -> tuple[int, str]:
        """As many as are affordable, unless there is a reason for none."""
        if self.stopped in _UNFINISHED:
            return 0, _UNFINISHED[self.stopped]
        if not number:
            return 0, expensive
        if self.target is None:
            return 0, "the target is not known here"
        if isinstance(self.target, JaxTarget) and self.target.stochastic:
            return 0, "the target's values are random"
        return number, ""
