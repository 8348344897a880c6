"""The samples that are relevant to each component, as bits.

Each pair of a sample and a component is a bit. The bits are counted up to each word, so that the samples of a
component are found by their rank, some at a time, without a pass over all samples.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt

from natmix.array_types import Count, PyTree
from natmix.kernels.batching import batch_max

BITS = 32


class SampleBitset(eqx.Module):
    """A set of samples for each of K components."""

    words: UInt[Array, "K W"]
    """Bit i of word j belongs to sample 32 j + i."""
    ranks: Int[Array, "K W"]
    """How many samples are in the set up to the end of this word."""

    @classmethod
    def of(cls, words: UInt[Array, "W K"]) -> "SampleBitset":
        """The sets given by the bits of these words."""
        words = words.T
        return cls(words, jnp.cumsum(_ones(words), axis=1, dtype=jnp.int32))

    @property
    def counts(self) -> Int[Array, " K"]:
        """How many samples the set of each component has."""
        return self.ranks[:, -1]

    def samples(self, numbers: Int[Array, " C"]) -> Int[Array, "K C"]:
        """The samples of these ranks in each component's set; undefined where it has fewer."""
        return jax.vmap(_samples, (0, 0, None))(self.words, self.ranks, numbers)

    def fold(
        self, step: Callable[[PyTree, Array, Array], PyTree], start: PyTree, rows: tuple[int, ...]
    ) -> PyTree:
        """``step(carry, samples, whether they exist)`` over blocks of the sets, the largest blocks first.

        Each size divides the one before; smaller blocks take what larger ones leave.
        """
        longest = batch_max(jnp.max(self.counts))
        first, carry = jnp.zeros_like(longest), start
        for size, smallest in zip(rows, (False,) * (len(rows) - 1) + (True,), strict=True):
            left = longest - first
            trips = (left + size - 1) // size if smallest else left // size

            def samples(i: Count | int, first: Count = first, size: int = size) -> tuple[Array, Array]:
                numbers = first + i * size + jnp.arange(size, dtype=jnp.int32)
                return self.samples(numbers), numbers < self.counts[:, None]

            # Found one round ahead: otherwise the search is repeated for every array that is indexed.
            def body(i: Count, carry: PyTree, samples: Callable[..., PyTree] = samples) -> PyTree:
                return step(carry[0], *carry[1]), samples(i + 1)

            carry, _ = jax.lax.fori_loop(0, trips, body, (carry, samples(0)))
            first = first + trips * size
        return carry


def words_of(mask: Bool[Array, "N K"]) -> UInt[Array, "W K"]:
    """A bit for each pair, 32 samples in a word."""
    N, K = mask.shape
    padded = jnp.pad(mask, ((0, -N % BITS), (0, 0))).reshape(-1, BITS, K)
    bits = jnp.left_shift(jnp.uint32(1), jnp.arange(BITS, dtype=jnp.uint32))
    return jnp.sum(jnp.where(padded, bits[:, None], jnp.uint32(0)), axis=1, dtype=jnp.uint32)


def _samples(
    words: UInt[Array, " W"], ranks: Int[Array, " W"], numbers: Int[Array, " C"]
) -> Int[Array, " C"]:
    index = jnp.searchsorted(ranks, numbers, side="right", method="scan_unrolled").astype(jnp.int32)
    index = jnp.minimum(index, words.shape[0] - 1)
    word = words[index]
    rank = numbers - (ranks[index] - _ones(word))
    bit = jnp.zeros_like(index)
    # Bisection of the word: each time the half that holds the bit of this rank.
    for width in (16, 8, 4, 2, 1):
        low = word & jnp.uint32(2**width - 1)
        below = _ones(low)
        upper = rank >= below
        rank = rank - jnp.where(upper, below, 0)
        word = jnp.where(upper, word >> width, low)
        bit = bit + jnp.where(upper, width, 0).astype(bit.dtype)
    return index * BITS + bit


def _ones(words: UInt[Array, "..."]) -> Int[Array, "..."]:
    return jax.lax.population_count(words).astype(jnp.int32)
