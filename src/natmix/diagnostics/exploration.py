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
from jaxtyping import Float, Int

from natmix.array_types import PRNGKey
from natmix.diagnostics.chains import LEAPS, walk
from natmix.diagnostics.draws import Draws
from natmix.diagnostics.elbo import evaluated_draws
from natmix.diagnostics.psis import pareto_smooth
from natmix.estimate import Estimate
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget

STEPS = 40
"""Of each chain, of `LEAPS` evaluations each; without gradients so many times as many, of one evaluation. The
second half counts."""
BRIEF_STEPS = 10
"""Of chains that nobody asked for: at an equal number of evaluations many short ones come by more necks than
few long ones, though none gets far into them."""
POOL = 10
"""Samples of the mixture evaluated for each chain, to choose its start from: the more, the less does one
large weight decide where the chains begin."""
ENDS_MASS, ENDS_CHAINS = 0.05, 0.25
"""Share of all mass with the lowest log p~, or the highest, and of the chains that start there: what a
mixture lacks is mostly next to its tails or to a narrow place of high density. More chains there make the
estimate sharper and leave its mean as it is, as each counts by the mass that it stands for."""
LACK = np.log(100)
"""Nats by which the mixture's log density must be too low for a place to count as lacking: samples of the
mixture find it at most a hundredth as often as they should. With a tenth the tails of Student's t, of which
the mixture's samples know, give as much noise as the neck of the centred eight schools gives signal."""
DRIFT_ERRORS = 2.0
"""Mass counts as uncovered if the chains find more of it than the mixture's samples do by this many standard
errors (five independent chains, if they find equally much), and by one of the shares that follow."""
DRIFT_SHARE, BRIEF_DRIFT_SHARE = 0.007, 0.0045
"""Of all mass, for chains of `STEPS` and of up to `BRIEF_STEPS`. Measured between the tails of mixtures of
Student's t in sound fits (0.3% and 0.2%) and the neck of the centred eight schools (1.1% and 0.65%)."""
LACKING_SHARE, KNOWN_WITHIN = 0.01, 0.25
"""Or if the chains find so much of it, by as many errors, and the mixture's samples know it only to within
this share: by fewer than 16 samples, which are too few to correct by."""


class Exploration(NamedTuple):
    """What chains found.

    Attributes:
        lacking: share of all mass where the mixture has less than a hundredth of the target's density, by the
            chains: a lower bound, as they are short.
        known: the same by the mixture's samples and their importance weights.
        drift: their difference.
        position: one of the places the chains have found lacking; None if there is none.
        chains: how many.
        steps: of each.
        accepted: share of their steps.
        evaluations: of the target (values, or values and gradients).
    """

    lacking: Estimate
    known: Estimate
    drift: Estimate
    position: Float[np.ndarray, " D"] | None
    chains: int
    steps: int
    accepted: float
    evaluations: int

    @property
    def uncovered(self) -> bool:
        """Whether the target has mass that the mixture does not cover."""
        share = BRIEF_DRIFT_SHARE if self.steps <= BRIEF_STEPS else DRIFT_SHARE
        more = self.drift.value > max(share, DRIFT_ERRORS * self.drift.standard_error)
        much = self.lacking.value > max(LACKING_SHARE, DRIFT_ERRORS * self.lacking.standard_error)
        vague = self.known.standard_error > KNOWN_WITHIN * self.lacking.value
        return more or (much and vague)


def explore(
    mixture: Mixture,
    target: AbstractTarget,
    draws: Draws,
    key: PRNGKey,
    chains: int,
    steps: int = STEPS,
) -> Exploration:
    """Start ``chains`` from samples of the mixture, drawn again by their importance weights."""
    size = len(draws)
    for i in range(_batches(chains, size)):  # of a size for which everything is compiled
        draws = draws.joined(evaluated_draws(mixture, target, jax.random.fold_in(key, i), size))
    usable = np.isfinite(draws.log_target)
    x, log_w = draws.x[usable], pareto_smooth(draws.log_ratio[usable]).log_weights
    log_z = scipy.special.logsumexp(log_w) - np.log(len(draws))
    weights = np.exp(log_w - scipy.special.logsumexp(log_w))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    start, share = _starts(draws.log_target[usable], weights, chains, rng)
    gradients = target.has_gradient
    times = steps if gradients else steps * LEAPS
    walked = walk(mixture, target, x[start], times, key, gradients=gradients)
    before = draws.log_ratio[usable] - log_z > LACK
    outside = walked.log_ratio - log_z > LACK
    after = np.mean(outside[times // 2 :], axis=0)
    lost = np.flatnonzero(outside[-1])
    lost = lost[np.argsort(walked.log_ratio[-1, lost])]
    return Exploration(
        _weighted(after, share, start),
        _weighted(before.astype(float), weights, np.arange(len(x))),
        _weighted(after - before[start], share, start),
        walked.x[lost[len(lost) // 2]] if lost.size else None,
        chains,
        steps,
        walked.accepted,
        chain_evaluations(chains, steps, size),
    )


def chain_evaluations(chains: int, steps: int, samples: int) -> int:
    """Of the target, by so many chains, if so many samples of the mixture are known."""
    return chains * (1 + steps * LEAPS) + _batches(chains, samples) * samples


def _batches(chains: int, samples: int) -> int:
    return -(-max(POOL * chains - samples, 0) // samples)


def _starts(
    log_p: Float[np.ndarray, " M"], weights: Float[np.ndarray, " M"], n: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Samples to start from, sorted, and the share of all mass that each stands for."""
    order = np.argsort(log_p, kind="stable")
    mass = np.cumsum(weights[order])
    ends = round(n * ENDS_CHAINS)
    chosen, share = [], []
    for low, high, count in (
        (0.0, ENDS_MASS, ends),
        (ENDS_MASS, 1 - ENDS_MASS, n - 2 * ends),
        (1 - ENDS_MASS, 1.0, ends),
    ):
        places = low + (high - low) * (np.arange(count) + rng.uniform()) / count
        chosen.append(order[np.minimum(np.searchsorted(mass, places), len(order) - 1)])
        share.append(np.full(count, (high - low) / count))
    start = np.concatenate(chosen)
    rank = np.argsort(start, kind="stable")
    return start[rank], np.concatenate(share)[rank]


def _weighted(
    f: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"], of: Int[np.ndarray, " N"]
) -> Estimate:
    """A weighted mean; what belongs to one sample is not independent of each other."""
    mean = float(weights @ f)
    return Estimate(mean, float(np.sqrt(np.sum(np.bincount(of, weights * (f - mean)) ** 2))))
