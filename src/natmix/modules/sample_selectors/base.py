"""The contract of a sample selector, and what both options share."""

import abc
import dataclasses
import math
from typing import ClassVar, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count, CountLike, PRNGKey
from natmix.kernels.importance_sums import log_sums
from natmix.kernels.log_densities import relevant_log_prob, reordered
from natmix.kernels.ring_buffer import front
from natmix.kernels.sample_arrays import Background
from natmix.kernels.sharding import everywhere, split
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import Option, ShapeBounds, actual_numbers, integer, ratio
from natmix.modules.records import Batch, Draws
from natmix.modules.sample_selectors.reuse import OldSamples, Ring, RingUpdate


class SampleNumbers(eqx.Module):
    """Numbers of samples of one run, below the static ones, which are their bounds in a program."""

    desired: Count
    reused: Count
    """Per component."""


class AbstractSampleSelector(Option):
    """Selects the samples of an iteration.

    The newest floor(reuse_ratio * desired_samples) * K samples are reused. Their effective sample
    size decides how many new ones are drawn (Section 3.1); the background density z covers all.

    The Gaussians of old samples must be stored, K per iteration. Therefore samples older than ``max_age``
    iterations are not reused; the paper has no such limit. Where components hardly move, the limit raises
    the number of new samples per component from 1 to about desired_samples / max_age.
    """

    samples_factor: ClassVar[int] = 1
    """`natmix.fit` asks for so many times the samples that suit one component."""

    desired_samples: int = integer(100, "effective samples wanted", low=1)
    reuse_ratio: float = ratio(
        0.0, "old samples reused, as a multiple of desired_samples per component", low=0
    )
    min_new_samples: int = integer(1, "least new samples (the paper's text: 0, its tables: 1)", low=0)
    max_age: int = integer(16, "iterations after which a sample is no longer reused", low=2)
    numbers: SampleNumbers | None = actual_numbers()
    """In place of the static ones; see `masked`."""

    def masked(self, bounds: ShapeBounds) -> Self:
        if self.numbers is not None:
            return self
        actual = (self.desired_samples, self.reused_per_slot)
        return dataclasses.replace(
            self,
            desired_samples=bounds.of(self.desired_samples),
            reuse_ratio=bounds.of_ratio(self.reuse_ratio) if self.reused_per_slot else 0.0,
            numbers=SampleNumbers(*(jnp.asarray(n, jnp.int32) for n in actual)),
        )

    @abc.abstractmethod
    def max_draws(self, slots: int) -> int:
        """The most new samples an iteration may need with ``slots`` component slots."""

    @abc.abstractmethod
    def next_draws_at_most(self, components: Count) -> Count:
        """The most new samples an iteration may need with so many components."""

    @abc.abstractmethod
    def effective_samples(
        self, log_components: Float[Array, "R K"], old: Background, mixture: Mixture
    ) -> Array:
        """n_eff of old samples: per component, or one number."""

    @abc.abstractmethod
    def draw(
        self, key: PRNGKey, mixture: Mixture, ids: Int[Array, " K"], n_eff: Array
    ) -> tuple[Float[Array, "N D"], Int[Array, " N"], Int[Array, " K"]]:
        """New samples (the real ones first), the slots they were drawn from, and how many each slot drew."""

    @property
    @abc.abstractmethod
    def draws_per_slot(self) -> int | None:
        """The most new samples of one component, stored consecutively; None if there is no bound."""

    @property
    def reused_per_slot(self) -> int:
        """Samples that are reused per component, or their bound."""
        return math.floor(self.reuse_ratio * self.desired_samples)

    @property
    def _desired(self) -> CountLike:
        return self.desired_samples if self.numbers is None else self.numbers.desired

    def _at_least_the_fewest(self, missing: Array) -> Array:
        """How many new samples to draw where so many are missing."""
        return jnp.maximum(missing, self.min_new_samples)

    def ring_size(self, slots: int) -> int:
        """Samples in the ring: as many as may be reused, but not more than are drawn in their life."""
        return min(self.reused_per_slot * slots, (self.max_age - 1) * self.max_draws(slots))

    def init(self, mixture: Mixture, needs_gradient: bool) -> Ring | None:
        """The ring of old samples, if any are reused."""
        if self.reused_per_slot == 0:
            return None
        size = self.ring_size(mixture.num_components)
        return Ring.empty(mixture, size, self.max_age, needs_gradient)

    def resized(self, state: Ring | None, old_slots: int, new_slots: int) -> Ring | None:
        """The state for another number of component slots, or of an option with other bounds."""
        if state is None:
            return None
        size = self.ring_size(new_slots)
        if old_slots == new_slots and size == state.x.shape[0]:
            return state
        return state.resized(old_slots, new_slots, size)

    def ask(
        self, state: Ring | None, key: PRNGKey, iteration: Count, mixture: Mixture, ids: Int[Array, " K"]
    ) -> Draws:
        """New samples, the real ones first."""
        old = None if state is None else state.recall(mixture, self._wanted(mixture), iteration)
        x, source, number = self.draw(key, mixture, ids, self._n_eff_of_old(old, mixture))
        x, source = split((x, source))
        return Draws(x, source, number, jnp.sum(number, dtype=jnp.int32), old)

    def _n_eff_of_old(self, old: OldSamples | None, mixture: Mixture) -> Array:
        if old is None:
            none = Background(jnp.zeros(1, mixture.dtype), jnp.zeros(1, bool))
            return self.effective_samples(jnp.zeros_like(mixture.log_weights)[None], none, mixture)
        background = Background(old.log_background, old.real & (old.log_target < jnp.inf))
        return self.effective_samples(old.log_components, background, mixture)

    def _wanted(self, mixture: Mixture) -> Count:
        reused = self.reused_per_slot if self.numbers is None else self.numbers.reused
        return reused * jnp.sum(mixture.log_weights > -jnp.inf, dtype=jnp.int32)

    def tell(
        self,
        state: Ring | None,
        draws: Draws,
        log_density: Float[Array, " N"],
        gradient: Float[Array, "N D"] | None,
        iteration: Count,
        mixture: Mixture,
        zero_penalty: Array,
    ) -> tuple[Ring | None, Batch]:
        """All samples of the iteration, old and new, with what the estimators need."""
        K = mixture.num_components
        new = jnp.arange(draws.x.shape[0]) < draws.count
        x = jnp.where(new[:, None], draws.x, 0)
        drawn = draws.number.astype(x.dtype)
        share = jnp.log(drawn) - jnp.log(jnp.maximum(_samples(draws), 1).astype(x.dtype))
        log_components = relevant_log_prob(
            mixture.components, x, draws.count, mixture.log_weights, draws.source, log_drawn=share
        )
        log_mass = log_sums(log_components, jnp.log(drawn), draws.count)
        raw, slope, source, near = log_density, gradient, draws.source, draws.source
        real, count = new, draws.count
        if state is not None:
            old: OldSamples = draws.old
            log_own = jnp.take_along_axis(log_components, draws.source[:, None], axis=1)[:, 0]
            mass, each = state.background_log_density(x, old.used, log_own, draws.count)
            keep = new & (log_density < jnp.inf)
            newest = RingUpdate(draws, log_density, gradient, keep, log_components, each)
            state = state.push(old, newest, mixture.components, iteration)
            old_mass = log_sums(old.log_components, jnp.log(drawn))
            real = jnp.concatenate([old.real, new])
            columns = [
                jnp.concatenate([old.x, x]),
                jnp.concatenate([old.log_target, raw]),
                jnp.concatenate([jnp.full(old.real.shape, -1, jnp.int32), source]),
                jnp.concatenate([old.near, near]),
                jnp.concatenate([jnp.logaddexp(old.log_mass, old_mass), jnp.logaddexp(mass, log_mass)]),
            ]
            if slope is not None and old.gradient is not None:
                columns.append(jnp.concatenate([old.gradient, slope]))
            order = front(real)
            x, raw, source, near, log_mass, *rest = split([a[order] for a in everywhere(columns)])
            slope = rest[0] if rest else None
            count = jnp.sum(real, dtype=jnp.int32)
            both = (old.log_components, log_components)
            log_components = reordered(mixture.components, both, order, x, count, mixture.exists)
            real = jnp.arange(x.shape[0]) < count
            x = jnp.where(real[:, None], x, 0)
        log_z = log_mass - jnp.log(jnp.maximum(count, 1).astype(x.dtype))
        own = None if self.draws_per_slot is None else _own_table(source, real, K, self.draws_per_slot)
        drawn_from = (source, near, own)
        return state, _batch(x, raw, slope, drawn_from, real, count, log_z, log_components, zero_penalty)


def _samples(draws: Draws) -> Count:
    """The number of old and new samples."""
    return draws.count if draws.old is None else draws.count + jnp.sum(draws.old.real, dtype=jnp.int32)


def _batch(
    x: Array,
    raw: Array,
    slope: Array | None,
    drawn_from: tuple[Array, Array, Array | None],
    real: Array,
    count: Count,
    log_z: Array,
    log_components: Array,
    zero_penalty: Array,
) -> Batch:
    """The batch, with finite placeholders for samples that are not real or not valid (x has them already)."""
    valid = real & (raw < jnp.inf)  # NaN and +inf are not
    zero = valid & (raw == -jnp.inf)
    if slope is not None:
        usable = jnp.all(jnp.isfinite(slope), axis=1)
        valid = valid & (usable | zero)
        slope = jnp.where((valid & ~zero)[:, None], slope, 0)
    finite = valid & ~zero
    worst = jnp.min(jnp.where(finite, raw, jnp.inf))
    floor = jnp.where(jnp.any(finite), worst, 0) - zero_penalty
    log_target = jnp.where(finite, raw, jnp.where(zero, floor, 0))
    source, near, own = drawn_from
    return Batch(
        x=x,
        log_target=log_target,
        gradient=slope,
        log_background=jnp.where(real, log_z, 0),
        log_components=log_components,
        near=near,
        source=jnp.where(real, source, -1),
        valid=valid,
        zero=zero,
        count=count,
        own=own,
    )


def _own_table(source: Int[Array, " N"], real: Bool[Array, " N"], K: int, n: int) -> Int[Array, "K n"]:
    """Indices of each component's new samples, which are consecutive and in the order of the components."""
    N = source.shape[0]
    owner = jnp.where(real & (source >= 0), source, K)
    first = jnp.full(K, N, jnp.int32).at[owner].min(jnp.arange(N, dtype=jnp.int32), mode="drop")
    rows = first[:, None] + jnp.arange(n, dtype=jnp.int32)
    mine = (rows < N) & (owner[jnp.minimum(rows, N - 1)] == jnp.arange(K)[:, None])
    return jnp.where(mine, rows, -1)
