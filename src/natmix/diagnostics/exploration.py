"""Search for mass next to the mixture that its own samples cannot show, by Markov chains that start there.

Samples of the mixture, resampled by their importance weights, are samples of the target wherever the mixture
has any. Chains that leave the target invariant (`chains`) then leave the distribution of log p - log q
unchanged, if the mixture covers the target. Where it does not, as in the neck of a funnel or in a tail, they
reach places with far larger log p - log q than before. They do not cross barriers: see `mode_search`.
"""

import time
from typing import NamedTuple

import jax
import numpy as np
import scipy
from jaxtyping import Float, Int

from natmix.array_types import PRNGKey
from natmix.diagnostics.chains import LEAPFROG_STEPS, ChainsLateError, run_chains
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import evaluated_draws
from natmix.diagnostics.psis import pareto_smooth
from natmix.estimate import Estimate
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget

CHAIN_STEPS = 40
"""Steps of each chain, of `LEAPFROG_STEPS` evaluations each; without gradients so many times as many, of one
evaluation. The first half is warm-up."""
SHORT_CHAIN_STEPS = 10
"""Steps of the chains of a default diagnosis: for the same number of evaluations many short chains reach
more necks than few long ones, though none gets far into them."""
SAMPLES_PER_CHAIN = 10
"""Samples of the mixture evaluated for each chain, to choose its start from: the more, the less a single
large weight decides where the chains start."""
TAIL_MASS, TAIL_CHAINS = 0.05, 0.25
"""The share of the total mass with the lowest log p~, or the highest, and the share of the chains that start
there: uncovered mass is mostly next to the mixture's tails or to a narrow region of high density. More chains
there reduce the variance of the estimate without bias, as each counts by the mass that it represents."""
UNCOVERED_LOG_RATIO = np.log(100)
"""A point counts as not covered if the mixture's log density is too low by so many nats: its samples are
there at most a hundredth as often as they should be. With a tenth the tails of Student's t, which the
mixture's samples reach, give as much noise as the neck of the centred eight schools gives signal."""
EXCESS_ERRORS = 2.0
"""Uncovered mass is significant if the chains find more of it than the mixture's samples do by this many
standard errors (five independent chains, if they find equally much), and by one of the shares that follow."""
EXCESS_SHARE, SHORT_EXCESS_SHARE = 0.007, 0.0045
"""Shares of the total mass, for chains of `CHAIN_STEPS` and of up to `SHORT_CHAIN_STEPS`. They lie between
the measured tails of mixtures of Student's t in good fits (0.3% and 0.2%) and the neck of the centred eight
schools (1.1% and 0.65%)."""
UNCOVERED_SHARE, KNOWN_WITHIN = 0.01, 0.25
"""It is also significant if the chains find so much of it, by as many errors, and the relative error of the
samples' own estimate is above this share: fewer than 16 samples, too few to correct by."""


NO_SIGN = "the importance weights show no sign of tails that are not covered"
"""Why a fit that is nearly exact has no chains."""


class Exploration(NamedTuple):
    """What Markov chains from the mixture's samples found.

    Attributes:
        uncovered: the share of the total mass where the mixture's density is less than a hundredth of the
            target's, by the chains: a lower bound, as they are short.
        uncovered_by_samples: the same by the mixture's samples and their importance weights.
        excess: the difference of the two.
        position: a point that the chains found not covered; None if there is none.
        points: the last points of the chains that are not covered.
        chains: the number of chains.
        steps: of each chain.
        acceptance_rate: of the steps.
        evaluations: of the target (values, or values and gradients).
    """

    uncovered: Estimate
    uncovered_by_samples: Estimate
    excess: Estimate
    position: Float[np.ndarray, " D"] | None
    points: Float[np.ndarray, "M D"]
    chains: int
    steps: int
    acceptance_rate: float
    evaluations: int

    @property
    def significant(self) -> bool:
        """Whether the target has mass that the mixture does not cover."""
        share = SHORT_EXCESS_SHARE if self.steps <= SHORT_CHAIN_STEPS else EXCESS_SHARE
        more = self.excess.value > max(share, EXCESS_ERRORS * self.excess.standard_error)
        much = self.uncovered.value > max(UNCOVERED_SHARE, EXCESS_ERRORS * self.uncovered.standard_error)
        vague = self.uncovered_by_samples.standard_error > KNOWN_WITHIN * self.uncovered.value
        return more or (much and vague)


def explore(
    mixture: Mixture,
    target: AbstractTarget,
    draws: EvaluatedDraws,
    key: PRNGKey,
    chains: int,
    steps: int = CHAIN_STEPS,
    max_seconds: float = np.inf,
) -> Exploration:
    """Run ``chains`` from samples of the mixture, resampled by their importance weights.

    Raises:
        ChainsLateError: they take longer than ``max_seconds``.
    """
    size, deadline = len(draws), time.monotonic() + max_seconds
    for i in range(_batches(chains, size)):  # of the size for which everything is compiled
        if time.monotonic() > deadline:
            raise ChainsLateError(i * size)
        draws = draws.joined(evaluated_draws(mixture, target, jax.random.fold_in(key, i), size))
    usable = np.isfinite(draws.log_target)
    x, log_w = draws.x[usable], pareto_smooth(draws.log_ratio[usable]).log_weights
    log_z = scipy.special.logsumexp(log_w) - np.log(len(draws))
    weights = np.exp(log_w - scipy.special.logsumexp(log_w))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    start, mass = starting_points(draws.log_target[usable], weights, chains, rng)
    gradients = target.has_gradient
    times = steps if gradients else steps * LEAPFROG_STEPS
    try:
        left = deadline - time.monotonic()
        record = run_chains(mixture, target, x[start], times, key, gradients=gradients, max_seconds=left)
    except ChainsLateError as late:
        late.evaluations += _batches(chains, size) * size
        raise
    before = draws.log_ratio[usable] - log_z > UNCOVERED_LOG_RATIO
    uncovered = record.log_ratio - log_z > UNCOVERED_LOG_RATIO
    after = np.mean(uncovered[times // 2 :], axis=0)
    last = np.flatnonzero(uncovered[-1])
    last = last[np.argsort(record.log_ratio[-1, last])]
    return Exploration(
        _weighted_mean(after, mass, start),
        _weighted_mean(before.astype(float), weights, np.arange(len(x))),
        _weighted_mean(after - before[start], mass, start),
        record.x[last[len(last) // 2]] if last.size else None,
        record.x[last],
        chains,
        steps,
        record.acceptance_rate,
        chain_evaluations(chains, steps, size),
    )


def chain_evaluations(chains: int, steps: int, samples: int) -> int:
    """Evaluations of the target by so many chains, with so many evaluated samples of the mixture given."""
    return chains * (1 + steps * LEAPFROG_STEPS) + _batches(chains, samples) * samples


def _batches(chains: int, samples: int) -> int:
    return -(-max(SAMPLES_PER_CHAIN * chains - samples, 0) // samples)


def starting_points(
    log_p: Float[np.ndarray, " M"], weights: Float[np.ndarray, " M"], n: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Samples to start from, sorted, and the share of the total mass that each represents."""
    order = np.argsort(log_p, kind="stable")
    cumulative = np.cumsum(weights[order])
    tail = round(n * TAIL_CHAINS)
    chosen, share = [], []
    for low, high, count in (
        (0.0, TAIL_MASS, tail),
        (TAIL_MASS, 1 - TAIL_MASS, n - 2 * tail),
        (1 - TAIL_MASS, 1.0, tail),
    ):
        quantiles = low + (high - low) * (np.arange(count) + rng.uniform()) / count
        chosen.append(order[np.minimum(np.searchsorted(cumulative, quantiles), len(order) - 1)])
        share.append(np.full(count, (high - low) / count))
    start = np.concatenate(chosen)
    rank = np.argsort(start, kind="stable")
    return start[rank], np.concatenate(share)[rank]


def _weighted_mean(
    f: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"], of: Int[np.ndarray, " N"]
) -> Estimate:
    """A weighted mean; values of the same sample ``of`` are not independent."""
    mean = float(weights @ f)
    return Estimate(mean, float(np.sqrt(np.sum(np.bincount(of, weights * (f - mean)) ** 2))))
