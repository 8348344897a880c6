"""When a fit is accurate: KL(q || p) by the samples of its iterations, confirmed by fresh ones."""

from collections.abc import Mapping
from typing import NamedTuple

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

ACCURATE = "accurate"
"""Why a run pauses for fresh samples that confirm its accuracy."""
MIN_SAMPLES = 500
"""Fresh samples for that, at least."""


class MarginalErrors(NamedTuple):
    """The largest errors of the mixture's marginals by importance weights.

    They are known much better than from plain samples: near the target all weights are nearly equal.

    Attributes:
        mean: of a mean, in standard deviations.
        spread: of a standard deviation, as a share of it.
        quantile: of a 5% or 95% quantile, in standard deviations.
    """

    mean: float
    spread: float
    quantile: float


LARGEST_ERRORS = MarginalErrors(0.03, 0.03, 0.06)
"""Of an accurate mixture: about half of what 10,000 samples show (0.05, 5% and 0.1, noise included)."""
_QUANTILES = np.array([0.05, 0.95])
_SIGMAS = 2.0
_WAIT = 0.25
"""After samples that did not confirm it, the share of all evaluations so far until the next ones."""
_LARGEST_BIAS = 10.0
_NEGLIGIBLE_TAIL = 0.1
"""A tail that may hide less than this share of the accuracy needs no known shape: the largest of nearly equal
weights have a k-hat of any size."""
_NOISE_FACTOR = 3.0
"""The error of log Z may be so many times that of a light-tailed mixture whose KL(q || p) is the accuracy."""
TAIL_EVALUATIONS = 10_000
"""A fit that lacks nothing but known tails goes on for as many evaluations as it has taken until then, or for
so many if that is more, but for no more than `_TAIL_SHARE` of ``max_evaluations``. A Cauchy's tails need ever
more components; Markov chains then tell whether they matter."""
_TAIL_SHARE = 0.25


class Confirmation(NamedTuple):
    """What fresh samples say about a mixture.

    Attributes:
        close: whether KL(q || p), shares of modes and marginals are as they should be.
        tails: whether the tail of the importance weights and log Z are known as well as that.
    """

    close: bool
    tails: bool

    def __bool__(self) -> bool:
        return self.close and self.tails


class StoredAccuracyRule(NamedTuple):
    """What an `AccuracyRule` knows at a checkpoint."""

    next: int
    bias: float
    last: float
    close: int


class AccuracyRule(Recorder):
    """Pauses a run once KL(q || p) by its own samples is small, judged every `CHECK_EVERY` iterations.

    It compares the mean over these iterations plus two standard errors. The estimate of an iteration is made
    on the samples that the mixture was updated with, so it is too small, the more the longer they are
    reused. Fresh samples have to confirm it (`confirmed`); if they do not, their estimate tells the bias.
    """

    def __init__(self, accuracy: float) -> None:
        self._accuracy = accuracy
        self._recent: list[np.ndarray] = []
        self._next = 0
        self._bias = 1.0
        self._last = np.inf
        self._close = 0

    def stored(self) -> StoredAccuracyRule:
        """What is needed to go on, with the trajectory."""
        return StoredAccuracyRule(self._next, self._bias, self._last, self._close)

    def restore(self, stored: StoredAccuracyRule, since: Mapping[str, np.ndarray]) -> None:
        """Go on from there; ``since`` is the trajectory since the last check."""
        self._next, self._bias, self._last, self._close = stored
        self._recent = [since["kl"]] if since else []

    def restart(self) -> None:
        """Forget the iterations before a repair, or before a change of the number of samples."""
        self._recent, self._bias = [], 1.0

    def patient(self, evaluations: int, most: int | None) -> bool:
        """Whether to go on with a mixture that lacks nothing but known tails.

        Args:
            evaluations: of the run so far.
            most: of the whole fit, if there is a limit.
        """
        if not self._close:
            self._close = max(evaluations, 1)
        more = max(self._close, TAIL_EVALUATIONS)
        more = more if most is None else min(more, int(_TAIL_SHARE * most))
        return evaluations < self._close + more

    def refuted(self, evaluations: int, samples: int, kl: float) -> None:
        """Fresh samples did not confirm it: wait until others are cheap beside what was spent since.

        Args:
            evaluations: of the run so far.
            samples: how many fresh ones there were.
            kl: their estimate of KL(q || p).
        """
        self._next = evaluations + max(2 * samples, int(_WAIT * evaluations))
        if np.isfinite(kl):
            self._bias = float(np.clip(kl / max(self._last, 1e-12), 1.0, _LARGEST_BIAS))

    def chunk(self, run: SingleRun, chunk: Chunk) -> str | None:
        self._recent.append(chunk.infos["kl"])
        if run.iterations % CHECK_EVERY:
            return None
        values, self._recent = np.concatenate(self._recent), []
        early = run.evaluations < self._next or len(values) < CHECK_EVERY
        if self._accuracy == 0 or early or run.stopped is not None:
            return None
        self._last = upper_bound(values)
        return ACCURATE if self._bias * self._last <= self._accuracy else None


def upper_bound(values: Float[np.ndarray, " N"]) -> float:
    """The mean plus two standard errors; infinite if a value is not finite."""
    if not np.isfinite(values).all():
        return np.inf
    return float(values.mean() + _SIGMAS * values.std(ddof=1) / np.sqrt(len(values)))


def confirmed(mixture: Mixture, draws: EvaluatedDraws, accuracy: float) -> Confirmation:
    """What fresh samples say: KL(q || p), shares of modes and marginals; the tail of the weights and log Z.

    The verdict tolerates a heavy tail if little seems hidden there. To show that it is harmless then takes
    Markov chains, and 42,000 evaluations; a few more components make it light for a tenth of that. So a fit
    goes on while k-hat is above its limit, unless the tail hides a negligible share of the mass.

    It also goes on while log Z has a large error. KL(q || p) is log Z less the ELBO, and is not known better
    than log Z is: so its error may be the accuracy. It cannot be asked to be below the noise of the samples,
    however. A light-tailed mixture that is just accurate has log weights with the variance 2 KL, which gives
    log Z of n samples the error sqrt(2 accuracy / n). Three times that is allowed, if it is more than the
    accuracy, as with few samples or a small accuracy.
    """
    found = diagnose(mixture, draws)
    if found.verdict not in ("unsearched", "trust"):
        return Confirmation(False, False)
    kl = found.gap.value + _SIGMAS * found.gap.standard_error
    close = kl <= accuracy and all(
        e <= most for e, most in zip(marginal_errors(draws), LARGEST_ERRORS, strict=True)
    )
    tail = gather_evidence(draws).tail
    light = found.k_hat <= found.k_limit or tail.hidden_at_most <= _NEGLIGIBLE_TAIL * accuracy
    noise = _NOISE_FACTOR * float(np.sqrt(2 * accuracy / found.samples))
    return Confirmation(close, light and found.log_evidence.standard_error <= max(accuracy, noise))


def marginal_errors(draws: EvaluatedDraws) -> MarginalErrors:
    """By the weights of samples of a mixture; their tail is smoothed as in PSIS."""
    weights = gather_evidence(draws).weights
    x = draws.x[draws.log_target < np.inf]
    weights = weights / weights.sum()
    centre, corrected = x.mean(axis=0), weights @ x
    deviation = np.sqrt(np.mean((x - centre) ** 2, axis=0))
    spread = np.sqrt(weights @ (x - corrected) ** 2)
    order = np.argsort(x, axis=0)
    ordered = np.take_along_axis(x, order, axis=0)
    plain = np.full(len(x), 1 / len(x))
    apart = [
        np.abs(_quantiles(ordered[:, d], weights[order[:, d]]) - _quantiles(ordered[:, d], plain)).max()
        for d in range(x.shape[1])
    ]
    return MarginalErrors(
        float(np.max(np.abs(corrected - centre) / spread)),
        float(np.max(np.abs(deviation / spread - 1))),
        float(np.max(np.array(apart) / spread)),
    )


def _quantiles(ordered: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"]) -> np.ndarray:
    return np.interp(_QUANTILES, np.cumsum(weights) - weights / 2, ordered)
