"""Blocks of samples and of components: those that are real are handled, whatever their number and place."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plans import GPU, XLA

from natmix.kernels.blocks import components_at_once, map_blocks, map_components, skipping, sum_blocks
from natmix.kernels.plan import using


@pytest.mark.parametrize("batch", [1, 3, 8, 20])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_rows_present_get_their_result_and_others_zero(batch, share):
    rng = np.random.default_rng(batch)
    present = rng.random(8) < share
    x, y = rng.normal(size=(8, 3)), rng.normal(size=8)

    def block(x, y):
        return {"sum": jnp.sum(x, axis=1) + y, "positive": y > 0}

    got = map_components(block, (jnp.asarray(x), jnp.asarray(y)), jnp.asarray(present), batch)
    np.testing.assert_allclose(got["sum"], np.where(present, x.sum(axis=1) + y, 0))
    np.testing.assert_array_equal(got["positive"], present & (y > 0))


def test_absent_rows_are_not_computed():
    visited = []

    def block(x):
        jax.debug.callback(lambda v: visited.append(np.asarray(v).shape[0]), x)
        return x

    map_components(block, (jnp.ones(32),), jnp.arange(32) % 8 == 0, 4)
    jax.effects_barrier()
    assert visited == [4]


def test_elements_of_a_batch_agree_on_the_number_of_blocks():
    present = jnp.asarray([[True] * 1 + [False] * 7, [True] * 6 + [False] * 2])
    x = jnp.arange(16.0).reshape(2, 8)
    got = jax.vmap(lambda x, p: map_components(lambda a: 2 * a, (x,), p, 2))(x, present)
    np.testing.assert_array_equal(got, np.where(present, 2 * x, 0))


def test_accelerators_take_as_many_components_at_once_as_fit():
    with using(XLA):
        assert components_at_once(100, on_cpu=8) == 8
    with using(dataclasses.replace(GPU, block_elements=1000)):
        assert components_at_once(100, on_cpu=8) == 10
        assert components_at_once(10_000, on_cpu=8) == 1


@pytest.mark.parametrize("n", [1, 7, 8, 9, 30, 64])
@pytest.mark.parametrize("rows", [1, 4, 8, 100])
def test_blocks_give_what_one_call_gives(n, rows):
    x = jnp.arange(2.0 * n).reshape(n, 2)
    np.testing.assert_array_equal(map_blocks(jnp.cumsum, (x[:, 0],), n), jnp.cumsum(x[:, 0]))
    np.testing.assert_array_equal(map_blocks(lambda x: x**2, (x,), rows), x**2)
    np.testing.assert_allclose(sum_blocks(lambda x: jnp.sum(x, axis=0), (x,), rows), jnp.sum(x, axis=0))


@pytest.mark.parametrize("keep", [False, True])
def test_only_blocks_with_real_samples_are_computed(keep):
    seen = []

    def watched(x):
        jax.debug.callback(lambda x: seen.append(np.asarray(x).ravel().tolist()), x)
        return x

    out = map_blocks(watched, (jnp.arange(10.0),), 4, jnp.asarray(3), keep_blocks=keep)
    jax.effects_barrier()
    np.testing.assert_array_equal(out[:3], [0, 1, 2])
    assert seen == [[0, 1, 2, 3]]


def test_kept_blocks_hold_every_sample_once():
    """What the samples of a block share must be one thing for each of them."""

    def first(x):
        return jnp.broadcast_to(x[0], x.shape)

    x = jnp.arange(10.0)
    np.testing.assert_array_equal(
        map_blocks(first, (x,), 4, keep_blocks=True), [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]
    )


def test_large_blocks_are_divided_where_padding_may_be_skipped():
    with using(XLA):
        assert skipping(1000, 900, jnp.asarray(5)) == 1000
    with using(GPU):
        assert skipping(1000, 900, None) == 1000
        assert skipping(1000, 900, jnp.asarray(5)) == 113
        assert skipping(1000, 510, jnp.asarray(5)) == 64
        assert skipping(1000, 500, jnp.asarray(5)) == 1000
