"""MORE by native kernels, against the dense regression in NumPy and the form without them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from more_regressions import (
    case,
    check,
    check_padding,
    estimate,
    regression,
    with_invalid_samples,
    with_zeros,
)
from plans import NATIVE, XLA

from natmix import Mixture
from natmix.kernels import native
from natmix.kernels.more_regressions import choose
from natmix.kernels.plan import using

pytestmark = pytest.mark.skipif(not native.available(), reason="installed without native kernels")

SIZES = [(1, 1, 70), (1, 4, 2000), (5, 6, 301), (17, 2, 23), (37, 3, 41), (3, 11, 700)]
"""Components, dimensions, and samples of each: one chunk of the samples and several, parts of tiles, blocks
and vectors."""


@pytest.mark.parametrize(
    ("size", "self_normalised"), [*((size, True) for size in SIZES), (SIZES[2], False), (SIZES[4], False)]
)
def test_like_the_dense_regression(size, self_normalised):
    K, D, n = size
    mixture, batch = case(K=K, D=D, n=n)
    got = estimate(mixture, batch, self_normalised=self_normalised)
    check(got, regression(mixture, batch, self_normalised=self_normalised))


@pytest.mark.parametrize("own", [False, True])
def test_native_kernels_are_what_is_tested(own):
    mixture, batch = case()
    assert (choose(NATIVE, mixture.components, len(batch.x), own) == "native") is not own


def test_own_samples_only_have_another_form():
    mixture, batch = case()
    check(estimate(mixture, batch, own_samples_only=True), regression(mixture, batch, own=True))


@pytest.mark.parametrize("spread", [0.0, 40.0])
def test_pairs_that_all_matter_and_few_that_do(spread):
    mixture, batch = case(spread)
    check(estimate(mixture, batch), regression(mixture, batch))


def test_many_components_of_which_some_are_absent():
    mixture, batch = case(spread=6.0, K=300, D=3, n=7)
    absent = jnp.arange(300) % 7 == 2
    absent = absent | ((jnp.arange(300) >= 160) & (jnp.arange(300) < 200))
    mixture = Mixture(jnp.where(absent, -jnp.inf, mixture.log_weights), mixture.components)
    batch = dataclasses.replace(batch, log_components=jnp.where(absent, -jnp.inf, batch.log_components))
    got = estimate(mixture, batch)
    with using(XLA):
        want = estimate(mixture, batch)
    np.testing.assert_array_equal(got.ok, ~absent)
    np.testing.assert_array_equal(got.ok, want.ok)
    for a, b in ((got.curvature, want.curvature), (got.gradient, want.gradient)):
        assert not np.any(np.asarray(a)[absent])
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max())


def test_zeros_of_the_density():
    mixture, batch = with_zeros(*case())
    check(estimate(mixture, batch), regression(mixture, batch))


def test_samples_that_are_not_valid_have_no_weight():
    mixture, batch = with_invalid_samples(*case())
    check(estimate(mixture, batch), regression(mixture, batch))


def test_padding_changes_nothing():
    check_padding(*case(spread=3.0))


def test_a_sample_far_out_matters_though_its_weight_is_small():
    mixture, batch = case(spread=0.0, K=2, D=2)
    x = batch.x.at[0].set(1e4)
    log_c = mixture.component_log_prob(x)
    log_z = batch.log_background.at[0].set(log_c[0, 0] + 49)
    batch = dataclasses.replace(batch, x=x, log_components=log_c, log_background=log_z)
    batch = dataclasses.replace(batch, log_target=batch.log_target.at[0].set(-1e12))
    less = dataclasses.replace(batch, valid=batch.valid.at[0].set(False))
    expected, other = regression(mixture, batch), regression(mixture, less)
    assert np.max(np.abs(expected[0][0] - other[0][0])) > 1e-5
    check(estimate(mixture, batch), expected, 1e-6)


def test_a_component_without_samples():
    mixture, batch = case(spread=3.0)
    log_c = batch.log_components.at[:, 1].set(-jnp.inf)
    got = estimate(mixture, dataclasses.replace(batch, log_components=log_c))
    np.testing.assert_array_equal(got.ok, [True, False, True, True, True])
    assert not np.any(got.curvature[1])


def test_what_is_not_a_number_is_not_hidden():
    mixture, batch = case(spread=3.0)
    batch = dataclasses.replace(batch, log_components=batch.log_components.at[3, 2].set(jnp.nan))
    got = estimate(mixture, batch)
    assert not got.ok[2]
    with using(XLA):
        want = estimate(mixture, batch)
    np.testing.assert_array_equal(got.ok, want.ok)


def test_without_samples_there_is_nothing_to_learn():
    mixture, batch = case()
    got = estimate(mixture, dataclasses.replace(batch, valid=jnp.zeros_like(batch.valid)))
    assert not np.any(got.ok)
    assert not np.any(got.curvature)


def test_equations_without_a_solution():
    K, D, N = 3, 2, 70
    zero, k = jnp.zeros((N, K)), jnp.zeros(K)
    eye = jnp.broadcast_to(jnp.eye(D), (K, D, D))
    got = native.more_regressions(
        *(zero, zero[:, 0], jnp.zeros(N, bool), k, jnp.zeros((N, D)), jnp.zeros((K, D)), eye, k),
        *(jnp.array([True, False, True]), zero[:, 0], jnp.zeros(N, bool), k + 1, k + 1, k, k),
        jnp.array([0.0, 0.0, 1.0]),
        None,
    )
    np.testing.assert_array_equal(np.isnan(got), [[True] * 5, [False] * 5, [False] * 5])
    assert not np.any(got[1:])


def test_a_batch_at_once():
    cases = [case(spread, seed=seed) for spread, seed in ((0.0, 1), (3.0, 2), (40.0, 3))]
    together = jax.tree.map(lambda *a: jnp.stack(a), *cases)
    got = jax.jit(jax.vmap(estimate))(*together)
    for i, (mixture, batch) in enumerate(cases):
        check(jax.tree.map(lambda a, i=i: a[i], got), regression(mixture, batch))


@pytest.mark.parametrize("size", [(2, 10, 3000), (40, 5, 90)])
def test_single_precision_is_as_good_as_without_native_kernels(size):
    K, D, n = size
    mixture, batch = case(spread=1.0, K=K, D=D, n=n, dtype=np.float32)
    expected = regression(mixture, batch, ridge=1e-5)
    got = estimate(mixture, batch, ridge=1e-5)
    assert got.curvature.dtype == np.float32
    with using(XLA):
        want = estimate(mixture, batch, ridge=1e-5)
    for name, right in zip(("curvature", "gradient"), expected, strict=True):
        error, usual = (np.max(np.abs(np.asarray(getattr(e, name), float) - right)) for e in (got, want))
        assert error <= 3 * usual + 1e-6 * np.abs(right).max()


def check_regressions():
    """With the instructions of this process, for test_native.py."""
    test_like_the_dense_regression((37, 3, 41), False)
    mixture, batch = case(spread=1.0, K=3, D=11, n=700, dtype=np.float32)
    check(estimate(mixture, batch, ridge=1e-5), regression(mixture, batch, ridge=1e-5), 1e-3)
