"""Whether independent fits of one target agree."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.checks import as_int
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.evidence import gather_evidence
from natmix.diagnostics.modes import mode_labels
from natmix.estimate import Estimate
from natmix.mixture import Mixture
from natmix.random_keys import run_key
from natmix.text.html import preformatted

AGREED_DIVERGENCE = 0.02
"""Jensen-Shannon divergence in nats (at most log 2) up to which two fits count as the same.

Two Gaussians have it when their means differ by 0.4 standard deviations.
"""
_MISSED_DEFICIT = np.log(10)
"""A mode of one fit counts as missed by another whose log density there is too low by so many nats."""
_MIN_SHARE = 0.01
"""Smaller modes are not compared: they come and go by chance."""
_SAMPLES = 2000


@runtime_checkable
class Fit(Protocol):
    """What agreement needs to know of a result."""

    @property
    def mixture(self) -> Mixture:
        """The approximation."""
        ...

    @property
    def draws(self) -> EvaluatedDraws | None:
        """Its samples with known target density."""
        ...

    @property
    def stopped(self) -> str:
        """Why the fit ended."""
        ...


class UnsharedMode(NamedTuple):
    """A mode of one fit that another one missed.

    Attributes:
        fit: the number of the fit that missed it.
        other: the number of the fit that has it.
        position: the mean of its heaviest component.
        share: of the mixture that has it.
    """

    fit: int
    other: int
    position: Float[np.ndarray, " D"]
    share: float


@dataclasses.dataclass(frozen=True, repr=False)
class Agreement:
    """How well several fits agree; printing it shows the verdict.

    Attributes:
        divergences: Jensen-Shannon divergences between all pairs, in nats.
        missed: modes that one fit has and another one missed.
        log_evidences: of every fit, by importance sampling.
        spread: the largest difference of two log evidences, in standard errors of that difference.
    """

    divergences: Float[np.ndarray, "F F"]
    missed: tuple[UnsharedMode, ...]
    log_evidences: tuple[Estimate, ...]
    spread: float

    @property
    def agreed(self) -> bool:
        """Whether all fits are equivalent for most purposes."""
        return not self.missed and float(self.divergences.max()) <= AGREED_DIVERGENCE

    def __str__(self) -> str:
        n = len(self.log_evidences)
        far = float(self.divergences.max())
        lines = [
            f"{n} fits {'AGREE' if self.agreed else 'DISAGREE'}: Jensen-Shannon divergence at most {far:.3g} "
            f"nats (they agree up to {AGREED_DIVERGENCE:g}; the maximum is {np.log(2):.2f})"
        ]
        lines += [f"  log Z of fit {i}: {z}" for i, z in enumerate(self.log_evidences)]
        lines += [
            f"  Fit {m.fit} missed a mode that has {m.share:.1%} of fit {m.other}." for m in self.missed[:8]
        ]
        return "\n".join([*lines, "  Modes that all of them missed do not show here."])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def agreement(results: Sequence[Fit], *, samples: int = _SAMPLES, seed: int = 0) -> Agreement:
    """Compare fits of one target with different seeds or algorithms, without evaluating the target.

    It shows what one fit found and another missed, not what all of them missed.
    """
    if isinstance(results, Fit) or not isinstance(results, Sequence):
        raise ValueError(
            "agreement() compares several results, given as a list: agreement([one, other]), "
            f"got {type(results).__name__}."
        )
    strange = [r for r in results if not isinstance(r, Fit)]
    if strange:
        raise ValueError(
            f"agreement() compares results of natmix.fit, got {type(strange[0]).__name__}; to compare "
            "mixtures use one.kl(other)."
        )
    samples = as_int(samples, "samples")
    run_key(seed)
    if len(results) < 2:
        raise ValueError(f"agreement() compares at least two results, got {len(results)}.")
    mixtures = [r.mixture for r in results]
    if len({m.dim for m in mixtures}) > 1:
        raise ValueError("These results belong to targets of different dimensions.")
    draws = [np.asarray(m.sample(samples, key=seed + i), float) for i, m in enumerate(mixtures)]
    fits = list(enumerate(zip(mixtures, draws, strict=True)))
    divergences = np.zeros((len(fits), len(fits)))
    missed: list[UnsharedMode] = []
    for i, (p, x) in fits:
        for j, (q, y) in fits:
            if j < i:
                divergences[i, j] = divergences[j, i] = _jensen_shannon(p, q, x, y)
            if i != j:
                missed += _missed(i, p, j, q)
    evidences = tuple(_log_evidence(r) for r in results)
    return Agreement(divergences, tuple(missed), evidences, _spread(evidences))


def _log_evidence(result: Fit) -> Estimate:
    if result.draws is None or len(result.draws) < 2:
        return Estimate(float("nan"), float("inf"))
    return gather_evidence(result.draws).log_evidence


def _jensen_shannon(p: Mixture, q: Mixture, x: np.ndarray, y: np.ndarray) -> float:
    """1/2 E_p[log p/m] + 1/2 E_q[log q/m] with m = (p + q) / 2."""
    total = 0.0
    for points, own, other in ((x, p, q), (y, q, p)):
        here, there = (np.asarray(m.log_prob(jnp.asarray(points, m.dtype)), float) for m in (own, other))
        total += 0.5 * float(np.mean(np.log(2) - np.logaddexp(0, there - here)))
    return max(total, 0.0)


def _missed(i: int, by: Mixture, j: int, has: Mixture) -> list[UnsharedMode]:
    labels = mode_labels(has)
    weights = np.asarray(has.weights, float)
    out = []
    for m in range(labels.max() + 1):
        mine = np.flatnonzero(labels == m)
        top = np.asarray(has.means)[mine[np.argmax(weights[mine])]]
        share = float(weights[mine].sum())
        deficit = float(has.log_prob(top)) - float(by.log_prob(jnp.asarray(top, by.dtype)))
        if share >= _MIN_SHARE and deficit > _MISSED_DEFICIT:
            out.append(UnsharedMode(i, j, top, share))
    return out


def _spread(evidences: tuple[Estimate, ...]) -> float:
    pairs = [(a, b) for k, a in enumerate(evidences) for b in evidences[:k]]
    differences = [abs(a.value - b.value) / np.hypot(a.standard_error, b.standard_error) for a, b in pairs]
    return float(np.max(differences))
