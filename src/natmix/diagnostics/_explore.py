"""Look for mass next to the mixture that its own samples cannot show: let chains walk away from them.

Samples of the mixture, drawn again by their importance weights, are samples of the target wherever the
mixture has some. Chains that leave the target invariant (`_chains`) leave the distribution of log p - log q
as it is, if the mixture covers the target. Where it does not, as in the neck of a funnel or in a tail, they
come to places with far larger log p - log q than before. What is beyond a barrier they do not reach: see
`_missed`.
"""

from typing import NamedTuple

import jax
import numpy as np
import scipy
from jaxtyping import Float

from natmix._draws import Draws
from natmix._estimate import Estimate
from natmix._evaluate import evaluated_draws
from natmix._types import PRNGKey
from natmix.diagnostics._chains import LEAPS, walk
from natmix.diagnostics._pareto import pareto_smooth
from natmix.mixture import Mixture
from natmix.starts._values import Values
from natmix.targets import AbstractTarget

STEPS = 40
"""Of each chain, of `LEAPS` evaluations each; without gradients so many times as many, of one evaluation. The
second half counts."""
POOL = 10
"""Samples of the mixture evaluated for each chain, to choose its start from: the more, the less does one
large weight decide where the chains begin."""
LACK = np.log(10)
"""Nats by which the mixture's log density must be too low for a place to count as lacking: samples of the
mixture find it at most a tenth as often as they should."""
DRIFT_ERRORS, DRIFT_SHARE = 2.0, 0.005
"""Mass counts as uncovered if the chains find more of it than the mixture's samples do by this many standard
errors and by this share of all mass: as much as the tail of the weights may hide, see `HIDDEN_SHARE`. Good
fits stay below the share, whatever the errors."""
LACKING_SHARE, KNOWN_WITHIN = 0.01, 0.25
"""Or if the chains find so much of it, and the mixture's samples know it only to within this share: by fewer
than 16 samples, which are too few to correct by."""


class Exploration(NamedTuple):
    """What chains found.

    Attributes:
        lacking: share of all mass where the mixture has less than a tenth of the target's density, by the
            chains: a lower bound, as they are short.
        known: the same by the mixture's samples and their importance weights.
        drift: their difference.
        position: one of the places the chains have found lacking; None if there is none.
        chains: how many.
        accepted: share of their steps.
        evaluations: of the target (values, or values and gradients).
    """

    lacking: Estimate
    known: Estimate
    drift: Estimate
    position: Float[np.ndarray, " D"] | None
    chains: int
    accepted: float
    evaluations: int

    @property
    def uncovered(self) -> bool:
        """Whether the target has mass that the mixture does not cover."""
        more = self.drift.value > max(DRIFT_SHARE, DRIFT_ERRORS * self.drift.standard_error)
        vague = self.known.standard_error > KNOWN_WITHIN * self.lacking.value
        return more or (self.lacking.value > LACKING_SHARE and vague)


def explore(mixture: Mixture, target: AbstractTarget, draws: Draws, key: PRNGKey, chains: int) -> Exploration:
    """Start ``chains`` from samples of the mixture, drawn again by their importance weights."""
    key_pool, key_walk = jax.random.split(key)
    fresh = max(POOL * chains - len(draws), 0)
    if fresh:
        draws = draws.joined(evaluated_draws(mixture, target, key_pool, fresh))
    usable = np.isfinite(draws.log_target)
    x, log_w = draws.x[usable], pareto_smooth(draws.log_ratio[usable]).log_weights
    log_z = scipy.special.logsumexp(log_w) - np.log(len(draws))
    weights = np.exp(log_w - scipy.special.logsumexp(log_w))
    seed = int(jax.random.bits(key_walk))
    start = np.sort(_systematic(weights, chains, np.random.default_rng(seed)))
    values = Values(target, key_walk, mixture.dtype)
    gradients = target.has_gradient
    steps = STEPS if gradients else STEPS * LEAPS
    walked = walk(mixture, values, x[start], steps, seed, gradients=gradients)
    outside = walked.log_ratio - log_z > LACK
    before = draws.log_ratio[usable] - log_z > LACK
    after = np.mean(outside[steps // 2 :], axis=0)
    known = _weighted(before.astype(float), weights)
    # Chains from one sample are not independent of each other as samples of the target.
    by_sample = np.bincount(start, after - before[start], len(x)) / chains
    paired = np.bincount(start, minlength=len(x)) / chains
    drift = float(by_sample.sum())
    error = float(np.sqrt(np.sum((by_sample - paired * drift) ** 2)))
    lost = np.flatnonzero(outside[-1])
    return Exploration(
        Estimate(float(after.mean()), float(after.std() / np.sqrt(chains))),
        known,
        Estimate(drift, error),
        walked.x[lost[len(lost) // 2]] if lost.size else None,
        chains,
        walked.accepted,
        values.evaluations + fresh,
    )


def _systematic(
    weights: Float[np.ndarray, " N"], n: int, rng: np.random.Generator
) -> Float[np.ndarray, " n"]:
    places = (np.arange(n) + rng.uniform()) / n
    return np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)


def _weighted(f: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"]) -> Estimate:
    mean = float(weights @ f)
    return Estimate(mean, float(np.sqrt(np.sum((weights * (f - mean)) ** 2))))
