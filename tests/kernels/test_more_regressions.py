"""MORE's regressions without native kernels, against the dense regression in NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, make_batch, random_mixture
from more_regressions import (
    ONE,
    bumpy,
    case,
    check,
    check_padding,
    compiled,
    estimate,
    padded,
    regression,
    with_invalid_samples,
    with_zeros,
)
from plans import GPU, XLA

from natmix import Mixture
from natmix.kernels.more_regressions import choose, regressions, sparse
from natmix.kernels.plan import using


@pytest.fixture(autouse=True)
def without_native_kernels():
    """Those are tested in native/test_regressions.py."""
    with using(XLA):
        yield


@pytest.fixture
def patch(monkeypatch):
    """As ``monkeypatch``, for functions that are compiled anew."""

    def set_to(*arguments):
        compiled.cache_clear()
        jax.clear_caches()
        monkeypatch.setattr(*arguments)

    yield set_to
    compiled.cache_clear()
    jax.clear_caches()


def share_chosen(mixture, batch):
    parts, weights = mixture.components, mixture.log_weights
    pairs = regressions(parts, weights, batch, ONE, True, False, form="sparse")
    return float(jnp.sum(pairs.chosen.counts)) / batch.log_components.size  # type: ignore[attr-defined]


@pytest.mark.parametrize("spread", [0.0, 1.5, 40.0])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("self_normalised", [True, False])
@pytest.mark.parametrize("own", [False, True])
def test_like_the_dense_regression(spread, diagonal, self_normalised, own):
    mixture, batch = case(spread, diagonal=diagonal)
    got = estimate(mixture, batch, self_normalised=self_normalised, own_samples_only=own)
    check(got, regression(mixture, batch, self_normalised=self_normalised, own=own))


def test_pairs_far_apart_are_left_out_and_others_are_not():
    assert share_chosen(*case(40.0)) < 0.3
    assert share_chosen(*case(0.0)) == 1


def test_all_weights_equal():
    """Components that are all the same, and samples from one more that is."""
    one = random_mixture(0, 1, 3)
    mixture = Mixture.full(np.full(4, 0.25), np.repeat(one.means, 4, 0), np.repeat(one.covariances, 4, 0))
    x, _ = draw(one, 1, [300])
    batch = make_batch(mixture, x, bumpy(x))
    assert share_chosen(mixture, batch) == 1
    check(estimate(mixture, batch), regression(mixture, batch))


@pytest.mark.parametrize("spread", [1.5, 40.0])
def test_zeros_of_the_density(spread):
    mixture, batch = with_zeros(*case(spread))
    check(estimate(mixture, batch), regression(mixture, batch))


def test_samples_that_are_not_valid_have_no_weight():
    mixture, batch = with_invalid_samples(*case())
    check(estimate(mixture, batch), regression(mixture, batch))


@pytest.mark.parametrize("blocks", [32, 64, 300])
def test_any_size_of_blocks(patch, blocks):
    mixture, batch = case(spread=3.0)
    patch(sparse, "_FEW", blocks // 8)
    patch(sparse, "block_rows", lambda elements: blocks)
    check(estimate(mixture, batch), regression(mixture, batch))


@pytest.mark.parametrize("at_once", [2, 5])
def test_several_components_at_once(patch, at_once):
    """As on an accelerator."""
    patch(sparse, "_at_once", lambda gaussians: at_once)
    patch(sparse, "_rows_of_blocks", lambda F: (64, 16))
    for spread in (0.0, 3.0):
        mixture, batch = case(spread)
        check(estimate(mixture, batch), regression(mixture, batch))
        check(
            jax.tree.map(lambda a: a[:5], estimate(*padded(mixture, batch, 100, 3))),
            regression(mixture, batch),
        )


@pytest.mark.parametrize(
    ("capacity", "samples", "expected"), [(1, 10**9, "dense"), (2, 10, "dense"), (100, 10**7, "sparse")]
)
def test_an_accelerator_leaves_out_pairs_if_there_is_enough_to_gain(capacity, samples, expected):
    mixture, _ = case(K=capacity)
    assert choose(GPU, mixture.components, samples, False) == expected


def test_padding_changes_nothing():
    check_padding(*case(spread=3.0))


def test_single_precision_is_as_good_as_the_dense_regression():
    mixture, batch = case(spread=3.0, D=4, dtype=np.float32)
    expected = regression(mixture, batch)
    few = estimate(mixture, batch)
    assert few.curvature.dtype == np.float32
    check(few, expected, 2e-4)
    with using(GPU):
        assert choose(GPU, mixture.components, len(batch.x), False) == "dense"
        check(estimate(mixture, batch), expected, 2e-4)


def test_the_dense_form_gives_the_same():
    mixture, batch = case(spread=3.0)
    few = estimate(mixture, batch)
    with using(GPU):
        dense = estimate(mixture, batch)
    for a, b in zip(jax.tree.leaves(few), jax.tree.leaves(dense), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


def test_several_batches_at_once():
    """Seeds that run together: some with components apart, some without."""
    cases = [case(spread, seed=seed) for spread, seed in ((0.0, 1), (3.0, 2), (40.0, 3))]
    together = jax.tree.map(lambda *a: jnp.stack(a), *cases)
    got = jax.jit(jax.vmap(estimate))(*together)
    for i, (mixture, batch) in enumerate(cases):
        check(jax.tree.map(lambda a, i=i: a[i], got), regression(mixture, batch))


def test_a_component_without_samples_and_one_that_is_not_a_number():
    mixture, batch = case(spread=3.0)
    log_c = batch.log_components.at[:, 1].set(-jnp.inf).at[3, 2].set(jnp.nan)
    got = estimate(mixture, dataclasses.replace(batch, log_components=log_c))
    assert not got.ok[1]
    assert not got.ok[2]
