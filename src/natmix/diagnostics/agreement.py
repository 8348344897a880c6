"""Do independent fits of one target agree?"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.checks import as_int
from natmix.diagnostics.modes import group
from natmix.estimate import Estimate
from natmix.mixture import Mixture
from natmix.random_keys import run_key
from natmix.result.diagnosing import by_samples
from natmix.result.result import Result

AGREED_DIVERGENCE = 0.02
"""Jensen-Shannon divergence in nats (at most log 2) up to which two fits count as the same.

Two Gaussians have it when their means differ by 0.4 standard deviations.
"""
_LACKING = np.log(10)
"""Nats by which a fit's density at another one's mode must be too low for the mode to count as missing."""
_WORTH = 0.01
"""Share that a mode must have in one fit to be looked for in another: smaller ones come and go by chance."""
_SAMPLES = 2000


class Missing(NamedTuple):
    """A mode of one fit that another does not have.

    Attributes:
        fit: number of the fit that lacks it.
        other: number of the fit that has it.
        position: its heaviest component's mean.
        share: of the mixture that has it.
    """

    fit: int
    other: int
    position: Float[np.ndarray, " D"]
    share: float


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How alike several fits are.

    Attributes:
        divergences: Jensen-Shannon divergences between all pairs, in nats.
        missing: modes that one fit has and another has not.
        log_evidences: of every fit, by importance sampling.
        spread: largest difference of two log evidences, in standard errors of that difference.
    """

    divergences: Float[np.ndarray, "F F"]
    missing: tuple[Missing, ...]
    log_evidences: tuple[Estimate, ...]
    spread: float

    @property
    def agreed(self) -> bool:
        """Whether all fits are the same for most purposes."""
        return not self.missing and float(self.divergences.max()) <= AGREED_DIVERGENCE

    def __str__(self) -> str:
        n = len(self.log_evidences)
        far = float(self.divergences.max())
        lines = [
            f"{n} fits {'AGREE' if self.agreed else 'DISAGREE'}: Jensen-Shannon divergence at most {far:.3g} "
            f"nats (alike up to {AGREED_DIVERGENCE:g}, at most {np.log(2):.2f})"
        ]
        lines += [f"  log Z of fit {i}: {z}" for i, z in enumerate(self.log_evidences)]
        lines += [
            f"  Fit {m.fit} lacks a mode that has {m.share:.1%} in fit {m.other}." for m in self.missing[:8]
        ]
        return "\n".join([*lines, "  What all of them missed does not show here."])


def agreement(results: Sequence[Result], *, samples: int = _SAMPLES, seed: int = 0) -> Agreement:
    """Compare fits of the same target with different seeds (or algorithms); no evaluations of the target.

    What one fit found and another missed shows; what all of them missed does not.
    """
    if isinstance(results, Result) or not isinstance(results, Sequence):
        raise ValueError(
            "Agreement is between several results, in a list as in agreement([one, other]), "
            f"got {type(results).__name__}."
        )
    strange = [r for r in results if not isinstance(r, Result)]
    if strange:
        raise ValueError(
            f"Agreement is between results of natmix.fit, got {type(strange[0]).__name__}; for mixtures "
            "there is one.kl(other)."
        )
    samples = as_int(samples, "samples")
    run_key(seed)
    if len(results) < 2:
        raise ValueError(f"Agreement is between at least two results, got {len(results)}.")
    mixtures = [r.mixture for r in results]
    if len({m.dim for m in mixtures}) > 1:
        raise ValueError("These results are of targets with different dimensions.")
    draws = [np.asarray(m.sample(samples, key=seed + i), float) for i, m in enumerate(mixtures)]
    fits = list(enumerate(zip(mixtures, draws, strict=True)))
    divergences = np.zeros((len(fits), len(fits)))
    missing: list[Missing] = []
    for i, (p, x) in fits:
        for j, (q, y) in fits:
            if j < i:
                divergences[i, j] = divergences[j, i] = _jensen_shannon(p, q, x, y)
            if i != j:
                missing += _missing(i, p, j, q)
    known = [by_samples(r) for r in results]
    evidences = tuple(Estimate(float("nan"), float("inf")) if d is None else d.log_evidence for d in known)
    return Agreement(divergences, tuple(missing), evidences, _spread(evidences))


def _jensen_shannon(p: Mixture, q: Mixture, x: np.ndarray, y: np.ndarray) -> float:
    """1/2 E_p[log p/m] + 1/2 E_q[log q/m] with m = (p + q) / 2."""
    total = 0.0
    for points, own, other in ((x, p, q), (y, q, p)):
        here, there = (np.asarray(m.log_prob(jnp.asarray(points, m.dtype)), float) for m in (own, other))
        total += 0.5 * float(np.mean(np.log(2) - np.logaddexp(0, there - here)))
    return max(total, 0.0)


def _missing(i: int, lacks: Mixture, j: int, has: Mixture) -> list[Missing]:
    labels = group(has)
    weights = np.asarray(has.weights, float)
    out = []
    for m in range(labels.max() + 1):
        mine = np.flatnonzero(labels == m)
        top = np.asarray(has.means)[mine[np.argmax(weights[mine])]]
        share = float(weights[mine].sum())
        lack = float(has.log_prob(top)) - float(lacks.log_prob(jnp.asarray(top, lacks.dtype)))
        if share >= _WORTH and lack > _LACKING:
            out.append(Missing(i, j, top, share))
    return out


def _spread(evidences: tuple[Estimate, ...]) -> float:
    pairs = [(a, b) for k, a in enumerate(evidences) for b in evidences[:k]]
    differences = [abs(a.value - b.value) / np.hypot(a.standard_error, b.standard_error) for a, b in pairs]
    return float(np.max(differences))
