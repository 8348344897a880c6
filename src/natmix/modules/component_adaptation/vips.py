"""Option A: delete components that do not contribute, add components in promising places (VIPS)."""

import dataclasses
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count, CountLike, Flag, PRNGKey, RealLike, Scalar
from natmix.kernels.batching import batch_any
from natmix.kernels.gaussian_batch import LOG_2PI
from natmix.kernels.linalg import einsum
from natmix.kernels.sharding import everywhere
from natmix.mixture import Mixture
from natmix.modules.component_adaptation.base import AbstractComponentAdaptation, Change, EvaluatedSamples
from natmix.modules.component_adaptation.reservoir import Reservoir
from natmix.modules.component_stepsizes.base import Rewards
from natmix.modules.hyperparameters import ShapeBounds, actual_numbers, count, integer, real, series
from natmix.modules.per_component import PerComponent

PAPER_THRESHOLDS = (5000.0, 1000.0, 500.0, 200.0, 100.0, 50.0)


FIT_DEFAULTS: dict[str, Any] = {
    "add_iters": 10,
    "del_iters": 50,
    "thresholds": (5000.0, 1000.0, 200.0, 50.0, 20.0, 5.0),
}
"""How components come and go in `natmix.fit` unless the user says otherwise.

The paper's thresholds end at 50 nats: in few dimensions all of its additions then go to far tails.
The two small ones refine what is known (benchmarks/quality/additions.py measures both).
"""


class History(eqx.Module):
    """What is kept for each component."""

    rewards: Float[Array, "*K W"]
    """The last records, newest last."""
    quiet: Int[Array, " *K"]
    """For how many iterations both the weight and the greedy weight have been below ``min_weight``."""


class VipsState(eqx.Module):
    """Histories, the database, and the number of additions so far."""

    history: PerComponent[History]
    database: Reservoir | None
    additions: Count


class VipsNumbers(eqx.Module):
    """Hyperparameters that decide shapes, below the static ones, which are their bounds in a program."""

    del_iters: Count
    prior_candidates: Count


class Vips(AbstractComponentAdaptation):
    """Adds every ``add_iters`` iterations, deletes after ``del_iters`` iterations without use.

    A new mean is the candidate with the largest log p~(x) - max(log q(x), max log q - d), with d
    from ``thresholds`` in turn (the second one first). Its covariance is c I with an entropy
    uniformly between that of the prior and the weighted mean of the components'. Candidates are
    stored samples from the whole history and fresh draws from the prior.

    A component is deleted when two conditions hold. Its weight and its greedy weight (softmax of r/T) stayed
    below ``min_weight`` throughout the last w + del_iters records. And its smoothed reward c has not risen
    over its value o del_iters records earlier: (c - o) / |o - max c| <= ``min_improvement``. The kernel is a
    Gaussian with w = 2 floor(del_iters/3) entries and standard deviation del_iters/8.
    """

    add_iters: CountLike = count(30, "iterations between additions", low=1)
    del_iters: int = integer(100, "iterations without use after which a component may go", low=3)
    max_components: CountLike = count(1000, "no additions beyond this number", low=1)
    database_candidates: int = integer(100_000, "stored samples tried as new means", low=0)
    prior_candidates: int = integer(0, "fresh prior samples tried as new means (evaluated, counted)", low=0)
    database_size: int = integer(
        200_000, "samples kept for that over the whole run; 0: only this iteration's exist", low=0
    )
    thresholds: tuple[float, ...] = series(
        PAPER_THRESHOLDS,
        "how far (nats) below the best known density a candidate counts as unexplored, in turn",
        low=0,
    )
    min_weight: RealLike = real(1e-6, "weight below which a component counts as unused", low=0, high=1)
    min_improvement: RealLike = real(0.4, "relative rise of the reward that saves an unused component", low=0)
    initial_weight: RealLike = real(1e-29, "weight of a new component", low=0, high=1, strict=True)

    numbers: VipsNumbers | None = actual_numbers()
    """In place of the static ones; see `masked`."""

    adds_components: ClassVar[bool] = True
    letter: ClassVar[str] = "A"
    title: ClassVar[str] = "Adaptive"

    def masked(self, bounds: ShapeBounds) -> Self:
        if self.numbers is not None:
            return self
        actual = (self.del_iters, self.prior_candidates)
        return dataclasses.replace(
            self,
            del_iters=bounds.of(self.del_iters),
            prior_candidates=bounds.of_candidates(self.prior_candidates),
            numbers=VipsNumbers(*(jnp.asarray(n, jnp.int32) for n in actual)),
        )

    @property
    def window(self) -> int:
        """The number of recorded rewards that a deletion depends on, or its bound."""
        return _kernel_size(self.del_iters) + self.del_iters

    def init(self, mixture: Mixture, prior: Mixture) -> VipsState:
        K, dtype = mixture.num_components, mixture.dtype
        fresh = History(jnp.full(self.window, -jnp.inf, dtype), jnp.zeros((), jnp.int32))
        database = Reservoir.empty(self.database_size, mixture.dim, dtype) if self.database_size else None
        return VipsState(PerComponent.full(K, fresh), database, jnp.zeros((), jnp.int32))

    @classmethod
    def fit_defaults(cls, fresh_candidates: int) -> dict[str, Any]:
        return {**FIT_DEFAULTS, "prior_candidates": fresh_candidates}

    def fitted(self, state: VipsState) -> VipsState:
        def cut(rewards: Array) -> Array:
            rows = rewards[..., -self.window :]
            missing = self.window - rows.shape[-1]
            spare = [(0, 0)] * (rows.ndim - 1) + [(missing, 0)]
            return jnp.pad(rows, spare, constant_values=-jnp.inf)

        def fit(history: History) -> History:
            return History(cut(history.rewards), history.quiet)

        history = PerComponent(fit(state.history.value), fit(state.history.fresh))
        return VipsState(history, state.database, state.additions)

    def stored_samples(self, state: VipsState) -> tuple[Array, Array, Array] | None:
        database = state.database
        return None if database is None else (database.x, database.log_target, database.filled)

    def addition_cycle(self) -> int:
        return len(self.thresholds) * int(self.add_iters)

    def most_components(self, start: int) -> int:
        return max(start, int(self.max_components))

    def num_candidates(self) -> CountLike:
        return self.prior_candidates if self.numbers is None else self.numbers.prior_candidates

    def wants_to_add(self, iteration: Count, mixture: Mixture) -> Flag:
        due = (iteration > 0) & (iteration % self.add_iters == 0)
        return due & (jnp.sum(mixture.log_weights > -jnp.inf) < self.max_components)

    def candidates(self, key: PRNGKey, prior: Mixture) -> Float[Array, "C D"]:
        noise = jax.random.normal(key, (1, self.prior_candidates, prior.dim), prior.dtype)
        return prior.components.colour(noise)[0]

    def adapt(
        self,
        state: VipsState,
        key: PRNGKey,
        iteration: Count,
        mixture: Mixture,
        rewards: Rewards,
        samples: EvaluatedSamples,
        candidates: EvaluatedSamples,
        prior: Mixture,
        temperature: Scalar,
    ) -> tuple[VipsState, Change]:
        key_store, key_pick, key_size = jax.random.split(key, 3)
        usable = samples.real & (samples.log_target < jnp.inf)
        database = state.database
        if database is not None:
            database = database.push(key_store, samples.x, samples.log_target, usable)
        history = self._record(state.history, mixture, rewards, temperature)
        delete = self._useless(history.value, iteration, mixture, rewards)
        # Deletion comes first: the slot of a deleted component is free for a new one.
        remaining = mixture.log_weights - jnp.where(delete, jnp.inf, 0)
        survivors = Mixture(jax.nn.log_softmax(remaining), mixture.components)
        add = self.wants_to_add(iteration, survivors)

        def seek(_: None) -> tuple[Array, Array, Array]:
            turn = self.thresholds[1:] + self.thresholds[:1]
            depth = jnp.asarray(turn, mixture.dtype)[state.additions % len(turn)]
            x, log_target, ok = _pool(
                key_pick, database, self.database_candidates, samples, usable, candidates
            )
            last = jnp.max(jnp.where(ok, jnp.arange(1, ok.shape[0] + 1), 0), initial=0)
            return best_candidate(survivors, x, log_target, ok, depth, last)

        def nothing(_: None) -> tuple[Array, Array, Array]:
            nowhere = jnp.full((), -jnp.inf, mixture.dtype)
            return jnp.zeros(mixture.dim, mixture.dtype), nowhere, nowhere

        def seek_if_wanted(_: None) -> tuple[Array, Array, Array]:
            return jax.lax.cond(add, seek, nothing, None)

        # In a batch of runs the search is skipped unless one of them adds.
        mean, score, gain = jax.lax.cond(batch_any(add), seek_if_wanted, nothing, None)
        add = add & (score > -jnp.inf)
        share = jax.random.uniform(key_size, (), mixture.dtype)
        model_entropy = jnp.sum(
            jnp.where(survivors.weights > 0, survivors.weights * mixture.components.entropy(), 0)
        )
        entropy = share * model_entropy + (1 - share) * prior.components.entropy()[0]
        scale = jnp.exp(entropy / mixture.dim - 0.5 * (1 + LOG_2PI))
        log_weight = jnp.log(self.initial_weight).astype(mixture.dtype)
        additions = state.additions + add.astype(jnp.int32)
        return VipsState(history, database, additions), Change(delete, add, mean, scale, log_weight, gain)

    def _record(
        self, history: PerComponent[History], mixture: Mixture, rewards: Rewards, temperature: Scalar
    ) -> PerComponent[History]:
        exists = mixture.log_weights > -jnp.inf
        greedy = jax.nn.softmax(jnp.where(exists, rewards.last / temperature, -jnp.inf))
        negligible = (mixture.weights < self.min_weight) & (greedy < self.min_weight)
        rolled = jnp.concatenate([history.value.rewards[:, 1:], rewards.last[:, None]], axis=1)
        return history.set(History(rolled, jnp.where(negligible, history.value.quiet + 1, 0)))

    def _useless(
        self, history: History, iteration: Count, mixture: Mixture, rewards: Rewards
    ) -> Bool[Array, " K"]:
        del_iters: Any = self.del_iters if self.numbers is None else self.numbers.del_iters
        w = _kernel_size(del_iters)
        window = w + del_iters
        exists = mixture.log_weights > -jnp.inf
        full = rewards.records >= window
        # Relative to the best reward, so that large rewards keep their precision.
        top = jnp.max(jnp.where(exists, rewards.last, -jnp.inf))
        safe = jnp.where(jnp.isfinite(history.rewards), history.rewards - top, 0)
        if self.numbers is None:
            kernel = jnp.asarray(_bell(self.del_iters), mixture.dtype)
            current = einsum("kw,w->k", safe[:, -w:], kernel)
            old = einsum("kw,w->k", safe[:, :w], kernel)
        else:
            newest = self.window - w
            current, old = (
                einsum("kw,w->k", safe, _placed_bell(del_iters, start, self.window).astype(mixture.dtype))
                for start in (newest, self.window - window)
            )
        known = exists & (rewards.records >= w)
        best = jnp.max(jnp.where(known, current, -jnp.inf))
        span = jnp.abs(old - best)
        stuck = current - old <= self.min_improvement * span
        quiet = history.quiet >= window
        heaviest = jnp.arange(exists.shape[0]) == jnp.argmax(mixture.log_weights)
        return exists & full & quiet & stuck & ~heaviest & (iteration > del_iters)


def _kernel_size(del_iters: CountLike) -> Any:
    """The entries of the kernel that smooths rewards."""
    return 2 * (del_iters // 3)


def _bell(del_iters: int) -> np.ndarray:
    """The kernel that smooths rewards."""
    w = _kernel_size(del_iters)
    bell = np.exp(-0.5 * ((np.arange(w) - w // 2) / (del_iters / 8)) ** 2)
    return bell / bell.sum()


def _placed_bell(del_iters: Count, start: Count, window: int) -> Float[Array, " W"]:
    """The kernel in the places from ``start`` of a ``window`` of records, zero elsewhere."""
    w = _kernel_size(del_iters)
    place = jnp.arange(window) - start
    bell = jnp.exp(-0.5 * ((place - w // 2) / (del_iters / 8)) ** 2)
    bell = jnp.where((place >= 0) & (place < w), bell, 0)
    return bell / jnp.sum(bell)


def _pool(
    key: PRNGKey,
    database: Reservoir | None,
    n: int,
    samples: EvaluatedSamples,
    usable: Bool[Array, " N"],
    candidates: EvaluatedSamples,
) -> tuple[Float[Array, "C D"], Float[Array, " C"], Bool[Array, " C"]]:
    """All candidates: fresh ones, and stored samples (without a database, those of this iteration)."""
    parts = [(candidates.x, candidates.log_target, candidates.real & (candidates.log_target < jnp.inf))]
    if database is not None:
        slots, ok = database.spread(key, min(n, database.x.shape[0]))
        parts.append((database.x[slots], database.log_target[slots], ok))
    elif n:
        parts.append((samples.x[:n], samples.log_target[:n], usable[:n]))
    points, values, usable_ones = zip(*parts, strict=True)
    return everywhere((jnp.concatenate(points), jnp.concatenate(values), jnp.concatenate(usable_ones)))


def best_candidate(
    mixture: Mixture,
    x: Float[Array, "C D"],
    log_target: Float[Array, " C"],
    ok: Bool[Array, " C"],
    depth: Scalar,
    count: Count | None = None,
) -> tuple[Float[Array, " D"], Scalar, Scalar]:
    """The candidate of highest score among the first ``count``, its score, and log p~ - log q there."""
    if x.shape[0] == 0:
        nowhere = jnp.full((), -jnp.inf, mixture.dtype)
        return jnp.zeros(mixture.dim, mixture.dtype), nowhere, nowhere
    log_q = everywhere(mixture.components.mixture_log_prob(mixture.log_weights, x, count))
    ceiling = jnp.max(jnp.where(ok, log_q, -jnp.inf))
    score = jnp.where(ok, log_target - jnp.maximum(log_q, ceiling - depth), -jnp.inf)
    best = jnp.argmax(score)
    return x[best], score[best], log_target[best] - log_q[best]
