"""The ring of the newest samples, with the Gaussians that they were drawn from.

The ring holds at most floor(ratio * desired) samples per component slot, and no more than can be drawn in
``max_age`` - 1 iterations. Every iteration is a generation: its Gaussians are kept for ``max_age``
generations, and older samples are not reused.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count
from natmix.gaussians import AbstractGaussians
from natmix.kernels.background_density import background_log_density
from natmix.kernels.batching import batch_any
from natmix.kernels.importance_sums import log_sums as log_sums_of
from natmix.kernels.log_densities import relevant_log_prob
from natmix.kernels.ring_buffer import count_rows, put_chosen
from natmix.kernels.sharding import everywhere
from natmix.mixture import Mixture
from natmix.modules.records import Draws


class OldSamples(NamedTuple):
    """All samples of the ring, newest first; those marked ``real`` are reused."""

    x: Float[Array, "R D"]
    log_target: Float[Array, " R"]
    gradient: Float[Array, "R D"] | None
    real: Bool[Array, " R"]
    near: Int[Array, " R"]
    """The slots of the components that they were drawn from."""
    log_components: Float[Array, "R K"]
    """Their log densities under the present components, -inf where negligible at working precision."""
    used: Float[Array, " HK"]
    """How many of the reused samples were drawn from each stored Gaussian."""
    log_mass: Float[Array, " R"]
    """log sum_g used_g N(x; g)."""
    log_background: Float[Array, " R"]
    """log z: the same divided by the number of reused samples; 0 for samples that are not reused."""


class RingUpdate(NamedTuple):
    """What a ring is given about the new samples of one iteration."""

    draws: Draws
    log_target: Float[Array, " N"]
    gradient: Float[Array, "N D"] | None
    keep: Bool[Array, " N"]
    log_components: Float[Array, "N K"]
    log_sums: Float[Array, "N H"]


class Ring(eqx.Module):
    """The newest samples of earlier iterations.

    The background z = sum_g n_g N(x; g) / n needs all stored Gaussians g. It is updated, not recomputed:
    ``log_sums`` has one sum per sample and generation. An iteration adds one column (the present components,
    whose densities it needs anyway) and the rows of its few new samples. Only the oldest generation, some of
    whose samples may have been overwritten, is summed again. On several devices each holds the whole ring,
    and evaluates densities for its share of the samples.

    Attributes:
        x: samples.
        log_target: log p~, as evaluated.
        gradient: grad log p~, if the estimator wants it.
        born: the iteration a sample was drawn in, -1 for an empty slot.
        source: the slot of the component it was drawn from.
        next: the slot that is written next.
        gaussians: the Gaussians of the last H generations, H * K slots.
        counts: how many samples each of them has drawn into the ring.
        log_sums: log sum_g counts_g N(x; g) over the Gaussians of each generation.
    """

    x: Float[Array, "R D"]
    log_target: Float[Array, " R"]
    gradient: Float[Array, "R D"] | None
    born: Int[Array, " R"]
    source: Int[Array, " R"]
    next: Count
    gaussians: AbstractGaussians
    counts: Float[Array, " HK"]
    log_sums: Float[Array, "R H"]

    @classmethod
    def empty(cls, mixture: Mixture, size: int, max_age: int, needs_gradient: bool) -> "Ring":
        """A ring for ``size`` samples."""
        K, D, dtype = mixture.num_components, mixture.dim, mixture.dtype
        R = size
        history = jax.tree.map(lambda a: jnp.concatenate([a] * max_age), mixture.components)
        return cls(
            x=jnp.zeros((R, D), dtype),
            log_target=jnp.zeros(R, dtype),
            gradient=jnp.zeros((R, D), dtype) if needs_gradient else None,
            born=jnp.full(R, -1, jnp.int32),
            source=jnp.zeros(R, jnp.int32),
            next=jnp.zeros((), jnp.int32),
            gaussians=history,
            counts=jnp.zeros(max_age * K, dtype),
            log_sums=jnp.full((R, max_age), -jnp.inf, dtype),
        )

    @property
    def max_age(self) -> int:
        """H, how many generations are stored."""
        return self.log_sums.shape[1]

    def recall(self, mixture: Mixture, wanted: Count, iteration: Count) -> OldSamples:
        """The newest ``wanted`` samples that are not too old, with densities under the present mixture."""
        R, H, K = self.x.shape[0], self.max_age, mixture.num_components
        age = jnp.arange(R)
        slot = (self.next - 1 - age) % R
        born = self.born[slot]
        alive = (born >= 0) & (born > iteration - H)
        real = alive & (age < wanted)
        count = jnp.sum(alive, dtype=jnp.int32)
        x = self.x[slot]
        near = self.source[slot]
        gaussian = (born % H) * K + near
        used = count_rows(gaussian, real, H * K).astype(x.dtype)
        reused = jnp.sum(real, dtype=jnp.int32)
        log_mass = self._log_mass(x, self.log_sums[slot], used, reused)
        log_z = jnp.where(real, log_mass - jnp.log(jnp.maximum(reused, 1).astype(x.dtype)), jnp.nan)
        return OldSamples(
            x=x,
            log_target=self.log_target[slot],
            gradient=None if self.gradient is None else self.gradient[slot],
            real=real,
            near=near,
            log_components=relevant_log_prob(
                mixture.components, x, count, mixture.log_weights, near, log_background=log_z
            ),
            used=used,
            log_mass=log_mass,
            log_background=jnp.where(real, log_z, 0),
        )

    def _log_mass(
        self, x: Float[Array, "R D"], log_sums: Float[Array, "R H"], used: Float[Array, " HK"], count: Count
    ) -> Float[Array, " R"]:
        H = self.max_age
        K = used.shape[0] // H
        some, all_of_it = (jnp.sum(n.reshape(H, K), axis=1) for n in (used, self.counts))
        cut = (some > 0) & (some < all_of_it)
        start = jnp.argmax(cut) * K

        def recomputed(_: None) -> Float[Array, " R"]:
            rows, n = jax.tree.map(
                lambda a: jax.lax.dynamic_slice_in_dim(a, start, K, 0), (self.gaussians, used)
            )
            return jnp.where(jnp.any(cut), rows.mixture_log_prob(jnp.log(n), x, count), -jnp.inf)

        def nothing(_: None) -> Float[Array, " R"]:
            return jnp.full(x.shape[0], -jnp.inf, x.dtype)

        whole = jnp.where((some > 0) & ~cut, log_sums, -jnp.inf)
        part = jax.lax.cond(batch_any(jnp.any(cut)), recomputed, nothing, None)
        return jnp.logaddexp(jax.nn.logsumexp(whole, axis=1), part)

    def background_log_density(
        self,
        x: Float[Array, "N D"],
        used: Float[Array, " HK"],
        log_own: Float[Array, " N"],
        count: Count,
    ) -> tuple[Float[Array, " N"], Float[Array, "N H"]]:
        """``log_mass`` and ``log_sums`` of new samples, drawn with log densities ``log_own``."""
        return background_log_density(self.gaussians, x, used, self.counts, log_own, self.max_age, count)

    def push(
        self, old: OldSamples, new: RingUpdate, components: AbstractGaussians, iteration: Count
    ) -> "Ring":
        """Write the samples to keep over the oldest ones, and store this iteration's Gaussians."""
        R, K = self.x.shape[0], components.capacity
        generation = iteration % self.max_age
        keep, draws = everywhere(new.keep), new.draws

        def replace(store: Array, rows: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(store, rows, generation * K, 0)

        counts = count_rows(draws.source, keep, K).astype(self.counts.dtype)
        here_old, here_new = (
            log_sums_of(c, jnp.log(counts)) for c in (old.log_components, new.log_components)
        )
        # The old samples are listed newest first, backwards from the slot before ``next``.
        column = jnp.roll(everywhere(here_old)[::-1], self.next)
        born = jnp.full(keep.shape, iteration, jnp.int32)
        stores = [
            self.x,
            self.log_target,
            self.born,
            self.source,
            self.log_sums.at[:, generation].set(column),
        ]
        rows = [draws.x, new.log_target, born, draws.source, new.log_sums.at[:, generation].set(here_new)]
        if self.gradient is not None and new.gradient is not None:
            stores.append(self.gradient)
            rows.append(new.gradient)
        x, log_target, born, source, log_sums, *gradient = put_chosen(
            tuple(stores), tuple(rows), keep, self.next
        )
        return Ring(
            x=x,
            log_target=log_target,
            gradient=gradient[0] if gradient else None,
            born=born,
            source=source,
            next=((self.next + jnp.sum(keep, dtype=jnp.int32)) % R).astype(jnp.int32),
            gaussians=jax.tree.map(replace, self.gaussians, everywhere(components)),
            counts=replace(self.counts, counts),
            log_sums=log_sums,
        )

    def resized(self, old_slots: int, new_slots: int, size: int) -> "Ring":
        """The newest samples in a ring of another size, of more component slots."""
        R, max_age = size, self.max_age
        oldest_first = (self.next + jnp.arange(self.x.shape[0])) % self.x.shape[0]

        def grow(a: Array, fill: float) -> Array:
            extra = jnp.full((max(0, R - a.shape[0]), *a.shape[1:]), fill, a.dtype)
            return jnp.concatenate([extra, a[oldest_first]])[-R:]

        def grow_history(h: Array) -> Array:
            h = h.reshape(max_age, old_slots, *h.shape[1:])
            spare = jnp.broadcast_to(h[:, :1], (max_age, new_slots - old_slots, *h.shape[2:]))
            return jnp.concatenate([h, spare], axis=1).reshape(max_age * new_slots, *h.shape[2:])

        return Ring(
            x=grow(self.x, 0),
            log_target=grow(self.log_target, 0),
            gradient=None if self.gradient is None else grow(self.gradient, 0),
            born=grow(self.born, -1),
            source=grow(self.source, 0),
            next=jnp.zeros((), jnp.int32),
            gaussians=jax.tree.map(grow_history, self.gaussians),
            counts=jnp.pad(
                self.counts.reshape(max_age, old_slots), [(0, 0), (0, new_slots - old_slots)]
            ).reshape(-1),
            log_sums=grow(self.log_sums, -jnp.inf),
        )
