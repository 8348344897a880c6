"""How many fresh samples estimate the ELBO of the mixture that a fit returns."""

import dataclasses

import numpy as np

from natmix.checks import as_int
from natmix.engine.accuracy import MIN_SAMPLES
from natmix.engine.single_run import SingleRun

ELBO_SAMPLES = 2000
"""The default."""

_INTERRUPTED_SECONDS = 2.0
"""About how long the final ELBO may take after an interrupt."""


@dataclasses.dataclass(frozen=True)
class FinalElbo:
    """How many samples the final ELBO has.

    Attributes:
        samples: as given by the user, or None.
        max_evaluations: of the whole fit.
    """

    samples: int | None
    max_evaluations: int | None

    def __post_init__(self) -> None:
        if self.samples is not None:
            object.__setattr__(self, "samples", as_int(self.samples, "elbo_samples", 2))

    @property
    def reserve(self) -> int:
        """Evaluations set aside for it."""
        if self.samples is not None:
            return self.samples
        share = ELBO_SAMPLES if self.max_evaluations is None else self.max_evaluations // 10
        return min(ELBO_SAMPLES, max(share, 1))

    def samples_after(self, run: SingleRun, inside_jax: bool, interrupted: bool, judged: bool = False) -> int:
        """Samples after this run: fewer for a target outside JAX, which may be slow.

        If they are ``judged``, they are enough for that as soon as a fifth of the evaluations is. After a run
        that ended by ``max_evaluations`` they are all that were set aside: nothing else can use them.
        """
        share = max(run.evaluations // 20, min(run.evaluations // 5, MIN_SAMPLES) if judged else 0)
        n = ELBO_SAMPLES if inside_jax else int(np.clip(share, 100, ELBO_SAMPLES))
        if self.samples is not None:
            n = self.samples
        elif self.max_evaluations is not None:
            n = self.reserve if run.stopped == "max_evaluations" else min(n, self.reserve)
        if interrupted and not inside_jax:
            affordable = int(run.evaluations / max(run.running_seconds, 1e-9) * _INTERRUPTED_SECONDS)
            n = min(n, affordable) if affordable > 1 else 0
        return n
