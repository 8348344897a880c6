"""Reservoir sampling: a fixed number of samples, nearly uniform over all samples of a run."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count, PRNGKey
from natmix.kernels.ring_buffer import put_chosen
from natmix.kernels.sharding import everywhere
from natmix.modules.per_component import SampleStore

_MANY = 2**31 - 2


class Reservoir(SampleStore):
    """Values of the target over the whole history of a run, at a fixed cost per new sample.

    Attributes:
        x: samples.
        log_target: log p~ there.
        seen: samples offered so far (the count stops just below 2^31).
    """

    x: Float[Array, "S D"]
    log_target: Float[Array, " S"]
    seen: Count

    @classmethod
    def empty(cls, size: int, dim: int, dtype: jnp.dtype) -> "Reservoir":
        """Room for ``size`` samples."""
        return cls(jnp.zeros((size, dim), dtype), jnp.zeros(size, dtype), jnp.zeros((), jnp.int32))

    def by_sample(self) -> tuple[Array, ...]:
        return self.x, self.log_target

    @property
    def filled(self) -> Count:
        """How many slots, from the first, hold a sample."""
        return jnp.minimum(self.seen, self.x.shape[0])

    def push(
        self, key: PRNGKey, x: Float[Array, "N D"], log_target: Float[Array, " N"], real: Bool[Array, " N"]
    ) -> "Reservoir":
        """Offer new samples: sample number t enters with probability size/t and replaces a random one.

        The samples that enter in one call take consecutive slots, the first at random, so that no two writes
        collide and each slot is overwritten with the same probability. In the call that fills the last slot
        only as many samples enter as there are empty slots, consecutive ones from a random one on: the
        others would all replace the first samples of the run.
        """
        S = self.x.shape[0]
        x, log_target, real = everywhere(
            (x, log_target, real)
        )  # each device picks the samples of its own slots
        number = jnp.minimum(self.seen, _MANY - real.shape[0]) + jnp.cumsum(real) - 1
        bits = jax.random.bits(key, (real.shape[0] + 1,), jnp.uint32)
        u = (bits[1:] >> 8).astype(jnp.float32) * 2**-24
        total = jnp.sum(real, dtype=jnp.int32)
        some = jnp.maximum(total, 1)
        first = (bits[0] % some.astype(jnp.uint32)).astype(jnp.int32)
        slot = (bits[0] % S).astype(jnp.int32)
        fills = (number - self.seen - first) % some < S - self.seen
        enters = real & jnp.where(self.seen < S, fills, u * (number + 1) < S)
        offset = jnp.where(self.seen < S, self.seen, slot)
        kept_x, kept_target = put_chosen((self.x, self.log_target), (x, log_target), enters, offset)
        return Reservoir(kept_x, kept_target, jnp.minimum(self.seen + total, _MANY - real.shape[0]))

    def spread(self, key: PRNGKey, n: int) -> tuple[Int[Array, " n"], Bool[Array, " n"]]:
        """``n`` slots, stratified over the filled ones (all of these if fewer), and which are real."""
        i = jnp.arange(n)
        filled = self.filled
        share = (i + jax.random.uniform(key, (n,))) / n
        stratified = jnp.minimum((share * filled).astype(jnp.int32), jnp.maximum(filled - 1, 0))
        few = filled <= n
        return jnp.where(few, jnp.minimum(i, self.x.shape[0] - 1), stratified), jnp.where(
            few, i < filled, True
        )
