"""The ring of the newest samples, with the Gaussians that they were drawn from.

The ring holds at most floor(ratio * desired) samples per component row. Every iteration is a
generation: its Gaussians are kept for ``max_age`` generations, and older samples are not reused.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix._records import Draws
from natmix._rows import SampleStore
from natmix._sharding import everywhere
from natmix._types import Count
from natmix.gaussians import AbstractGaussians
from natmix.mixture import Mixture


class OldSamples(NamedTuple):
    """The reused samples of an iteration, newest first; the rows marked ``real`` are."""

    x: Float[Array, "R D"]
    log_target: Float[Array, " R"]
    gradient: Float[Array, "R D"] | None
    gaussian: Int[Array, " R"]
    """Index into the remembered Gaussians, generation * K + row."""
    real: Bool[Array, " R"]


class Ring(SampleStore):
    """The newest samples of earlier iterations.

    Attributes:
        x: samples.
        log_target: log p~, as evaluated.
        gradient: grad log p~, if the estimator wants it.
        born: the iteration a sample was drawn in, -1 for an empty slot.
        source: the component row it was drawn from.
        next: the slot that is written next.
        gaussians: the Gaussians of the last H generations, H * K rows.
    """

    x: Float[Array, "R D"]
    log_target: Float[Array, " R"]
    gradient: Float[Array, "R D"] | None
    born: Int[Array, " R"]
    source: Int[Array, " R"]
    next: Count
    gaussians: AbstractGaussians

    @classmethod
    def empty(cls, mixture: Mixture, per_row: int, max_age: int, needs_gradient: bool) -> "Ring":
        """A ring for ``per_row`` samples per component row."""
        K, D, dtype = mixture.num_components, mixture.dim, mixture.dtype
        R = per_row * K
        history = jax.tree.map(lambda a: jnp.concatenate([a] * max_age), mixture.components)
        return cls(
            x=jnp.zeros((R, D), dtype),
            log_target=jnp.zeros(R, dtype),
            gradient=jnp.zeros((R, D), dtype) if needs_gradient else None,
            born=jnp.full(R, -1, jnp.int32),
            source=jnp.zeros(R, jnp.int32),
            next=jnp.zeros((), jnp.int32),
            gaussians=history,
        )

    def by_sample(self) -> tuple[Array, ...]:
        arrays = (self.x, self.log_target, self.born, self.source)
        return arrays if self.gradient is None else (*arrays, self.gradient)

    def newest(self, wanted: Count, iteration: Count, max_age: int, K: int) -> OldSamples:
        """The newest ``wanted`` samples that are not too old."""
        R = self.x.shape[0]
        store = everywhere(self)
        age = jnp.arange(R)
        slot = (self.next - 1 - age) % R
        born = store.born[slot]
        real = (born >= 0) & (born > iteration - max_age) & (age < wanted)
        return OldSamples(
            x=store.x[slot],
            log_target=store.log_target[slot],
            gradient=None if store.gradient is None else store.gradient[slot],
            gaussian=(born % max_age) * K + store.source[slot],
            real=real,
        )

    def remember(self, components: AbstractGaussians, iteration: Count, max_age: int) -> "Ring":
        """Keep this iteration's Gaussians in place of those ``max_age`` iterations ago."""
        start = (iteration % max_age) * components.capacity
        history = jax.tree.map(
            lambda h, c: jax.lax.dynamic_update_slice_in_dim(h, c, start, 0), self.gaussians, components
        )
        return eqx.tree_at(lambda r: r.gaussians, self, history)

    def push(
        self,
        draws: Draws,
        log_target: Array,
        gradient: Array | None,
        keep: Bool[Array, " N"],
        iteration: Count,
    ) -> "Ring":
        """Add this iteration's samples that are to be kept, over the oldest ones."""
        R = self.x.shape[0]
        draws, log_target, gradient, keep = everywhere((draws, log_target, gradient, keep))
        rank = jnp.cumsum(keep) - 1
        total = jnp.sum(keep)
        # With more samples than slots only the newest survive.
        slot = jnp.where(keep & (rank >= total - R), (self.next + rank) % R, R)

        def put(store: Array, new: Array) -> Array:
            return store.at[slot].set(new, mode="drop")

        return Ring(
            x=put(self.x, draws.x),
            log_target=put(self.log_target, log_target),
            gradient=None if self.gradient is None or gradient is None else put(self.gradient, gradient),
            born=put(self.born, jnp.full(slot.shape, iteration, jnp.int32)),
            source=put(self.source, draws.source),
            next=((self.next + total) % R).astype(jnp.int32),
            gaussians=self.gaussians,
        )

    def resized(self, old_rows: int, new_rows: int, per_row: int, max_age: int) -> "Ring":
        """The same samples in a ring for more component rows."""
        R = per_row * new_rows
        oldest_first = (self.next + jnp.arange(self.x.shape[0])) % self.x.shape[0]

        def grow(a: Array, fill: float) -> Array:
            extra = jnp.full((R - a.shape[0], *a.shape[1:]), fill, a.dtype)
            return jnp.concatenate([extra, a[oldest_first]])

        def grow_history(h: Array) -> Array:
            h = h.reshape(max_age, old_rows, *h.shape[1:])
            spare = jnp.broadcast_to(h[:, :1], (max_age, new_rows - old_rows, *h.shape[2:]))
            return jnp.concatenate([h, spare], axis=1).reshape(max_age * new_rows, *h.shape[2:])

        return Ring(
            x=grow(self.x, 0),
            log_target=grow(self.log_target, 0),
            gradient=None if self.gradient is None else grow(self.gradient, 0),
            born=grow(self.born, -1),
            source=grow(self.source, 0),
            next=jnp.zeros((), jnp.int32),
            gaussians=jax.tree.map(grow_history, self.gaussians),
        )

    def log_background(
        self, x: Float[Array, "N D"], gaussian: Int[Array, " N"], real: Bool[Array, " N"], count: Count
    ) -> Float[Array, " N"]:
        """Log z of samples drawn from the given remembered Gaussians."""
        counts = jnp.zeros(self.gaussians.capacity, x.dtype).at[gaussian].add(real.astype(x.dtype))
        log_share = jnp.log(counts) - jnp.log(jnp.maximum(jnp.sum(counts), 1))
        return self.gaussians.mixture_log_prob(log_share, x, count)
