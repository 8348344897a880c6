"""Samples found by their bits, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix.kernels.blocks import fold_blocks
from natmix.kernels.sample_bitset import SampleBitset, words_of


def masks(N, K=5):
    rng = np.random.default_rng(N)
    mask = rng.uniform(size=(N, K)) < np.array([0, 0.02, 0.3, 0.9, 1])
    mask[N // 2 :, 3] = False
    return mask


@pytest.mark.parametrize("N", [1, 31, 32, 33, 500, 4096])
def test_samples_are_found_by_their_number(N):
    mask = masks(N)
    chosen = SampleBitset.of(words_of(jnp.asarray(mask)))
    np.testing.assert_array_equal(chosen.counts, mask.sum(0))
    found = np.asarray(chosen.samples(jnp.arange(N, dtype=jnp.int32)))
    for k in range(mask.shape[1]):
        expected = np.flatnonzero(mask[:, k])
        np.testing.assert_array_equal(found[k, : len(expected)], expected)


def visits(mask, rows):
    """How often each sample is visited, and how many there were at a time."""
    sizes = []

    def step(seen, samples, real):
        sizes.append(samples.shape[1])
        return seen.at[samples, jnp.arange(seen.shape[1])[:, None]].add(real.astype(jnp.int32))

    start = jnp.zeros(mask.shape, jnp.int32)
    return SampleBitset.of(words_of(mask)).fold(step, start, rows), sizes


@pytest.mark.parametrize("rows", [(1,), (8,), (64, 8), (4096, 8), (512, 64, 4)])
def test_a_fold_visits_each_chosen_sample_once(rows):
    mask = masks(333)
    seen, sizes = visits(jnp.asarray(mask), rows)
    assert set(sizes) == set(rows)
    np.testing.assert_array_equal(seen, mask)


def test_folds_of_a_batch_at_once():
    many = jnp.asarray(np.stack([masks(333), masks(333)[::-1], np.zeros((333, 5), bool)]))
    seen = jax.vmap(lambda mask: visits(mask, (64, 8))[0])(many)
    np.testing.assert_array_equal(seen, many)


@pytest.mark.parametrize(("rows", "count"), [(10, None), (7, None), (7, 20), (7, 34), (40, 3)])
def test_blocks_are_each_seen_once(rows, count):
    x = jnp.arange(1.0, 36.0).at[count or 35 :].set(0)

    def add(carry, first, block):
        total, firsts = carry
        return total + jnp.sum(block), jax.lax.dynamic_update_slice_in_dim(firsts, block, first, 0)

    total, copy = fold_blocks(
        add, (0.0, jnp.zeros(35)), x, rows, None if count is None else jnp.asarray(count)
    )
    assert total == x.sum()
    np.testing.assert_array_equal(copy, x)
