"""When a fit is accurate: KL(q || p) by the samples of its iterations, confirmed by fresh ones."""

import numpy as np
from jaxtyping import Float

from natmix.diagnostics.diagnosis import diagnose
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.evidence import gather_evidence
from natmix.engine.convergence import CHECK_EVERY
from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.mixture import Mixture

ACCURACY = 0.005
"""KL(q || p), in nats, at which a fit ends unless the user says otherwise."""
ACCURATE = "accurate"
"""Why a run pauses for fresh samples that confirm its accuracy."""
MIN_SAMPLES = 500
"""Fresh samples for that, at least."""
MAX_MEAN_ERROR, MAX_SD_ERROR = 0.03, 0.03
"""By importance weights no mean may be off by so many standard deviations, and no standard deviation by this
share. Both are known much better than from plain samples: near the target all weights are nearly equal."""
_SIGMAS = 2.0
_WAIT = 0.25
"""After samples that did not confirm it, the share of all evaluations so far until the next ones."""


class AccuracyRule(Recorder):
    """Pauses a run once KL(q || p) by its own samples is small, judged every `CHECK_EVERY` iterations.

    It compares the mean over these iterations plus two standard errors. The estimate of an iteration is made
    on the samples that the mixture was updated with, so it is somewhat too small: fresh samples have to
    confirm it (`is_accurate`).
    """

    def __init__(self, accuracy: float) -> None:
        self._accuracy = accuracy
        self._recent: list[np.ndarray] = []
        self._next = 0

    def restart(self) -> None:
        """Forget the iterations before a repair."""
        self._recent = []

    def refuted(self, evaluations: int, samples: int) -> None:
        """Fresh samples did not confirm it: wait until another try is cheap beside what was spent since."""
        self._next = evaluations + max(2 * samples, int(_WAIT * evaluations))
        self._recent = []

    def chunk(self, run: SingleRun, chunk: Chunk) -> str | None:
        self._recent.append(chunk.infos["kl"])
        if run.iterations % CHECK_EVERY:
            return None
        values, self._recent = np.concatenate(self._recent), []
        if run.stopped is not None or run.evaluations < self._next or len(values) < CHECK_EVERY:
            return None
        return ACCURATE if upper_bound(values) <= self._accuracy else None


def upper_bound(values: Float[np.ndarray, " N"]) -> float:
    """The mean plus two standard errors; infinite if a value is not finite."""
    if not np.isfinite(values).all():
        return np.inf
    return float(values.mean() + _SIGMAS * values.std(ddof=1) / np.sqrt(len(values)))


def is_accurate(mixture: Mixture, draws: EvaluatedDraws, accuracy: float) -> bool:
    """Whether fresh samples confirm it: KL(q || p), the tail of the weights, shares of modes, moments."""
    found = diagnose(mixture, draws)
    gap = found.gap
    if found.verdict not in ("unsearched", "trust"):
        return False
    if not gap.value + _SIGMAS * gap.standard_error <= accuracy:
        return False
    mean, spread = moment_errors(draws)
    return mean <= MAX_MEAN_ERROR and spread <= MAX_SD_ERROR


def moment_errors(draws: EvaluatedDraws) -> tuple[float, float]:
    """The largest error of a mean, in standard deviations, and of a standard deviation, as a share of it."""
    weights = gather_evidence(draws).weights
    x = draws.x[draws.log_target < np.inf]
    weights = weights / weights.sum()
    centre = x.mean(axis=0)
    deviation = np.sqrt(np.mean((x - centre) ** 2, axis=0))
    corrected = weights @ x
    spread = np.sqrt(weights @ (x - corrected) ** 2)
    mean_error = np.abs(corrected - centre) / spread
    return float(np.max(mean_error)), float(np.max(np.abs(deviation / spread - 1)))
