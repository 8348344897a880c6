"""Masks below common bounds give the results of an algorithm's own numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_problem import tiny

from natmix import GMMVI
from natmix.experiments.problems.base import InitialRegion
from natmix.modules.hyperparameters import ShapeBounds
from natmix.modules.sample_selectors import FromComponents, FromMixture

BOUNDS = ShapeBounds(16, 2)


def test_bounds():
    assert [BOUNDS.of(n) for n in (1, 16, 17, 100)] == [16, 16, 32, 128]
    assert [ShapeBounds(10, 3).of(n) for n in (10, 11, 31)] == [10, 30, 90]
    assert [BOUNDS.of_candidates(n) for n in (0, 1, 17)] == [0, 16, 32]
    assert [ShapeBounds(16, 2, candidates=64).of_candidates(n) for n in (0, 1, 17, 65)] == [0, 64, 64, 128]
    assert [BOUNDS.of_ratio(r) for r in (0.3, 1.0, 1.5, 3.0)] == [1, 1, 2, 4]


@pytest.mark.parametrize("option", [FromComponents, FromMixture])
def test_a_masked_selector_bounds_what_it_may_need_by_its_own_numbers(option):
    own = option(desired_samples=11, reuse_ratio=1.5)
    masked = own.masked(BOUNDS)
    assert masked.max_draws(8) >= own.max_draws(8)
    assert masked.ring_size(8) >= own.ring_size(8)
    for components in (1, 5):
        bound = masked.next_draws_at_most(jnp.asarray(components))
        assert int(bound) == int(own.next_draws_at_most(jnp.asarray(components)))
    assert masked.masked(ShapeBounds(1000, 2)) is masked


def test_algorithms_below_the_same_bounds_have_one_structure():
    def masked(samples, ratio, del_iters, candidates):
        algorithm = GMMVI.from_codename(
            "samtron",
            sample_selector={"desired_samples": samples, "reuse_ratio": ratio},
            component_adaptation={"del_iters": del_iters, "prior_candidates": candidates},
        )
        return jax.tree.structure(algorithm.masked(BOUNDS))

    assert masked(17, 1.2, 20, 33) == masked(32, 2.0, 31, 64)
    assert masked(17, 1.2, 20, 33) != masked(16, 1.2, 20, 33)
    assert masked(17, 0.0, 20, 33) != masked(17, 1.2, 20, 33)
    assert masked(17, 1.2, 20, 0) != masked(17, 1.2, 20, 33)


def test_a_ring_holds_what_can_be_drawn_in_its_life():
    """A sample of P is reused for max_age - 1 iterations, which draw at most desired_samples each."""
    many = FromMixture(desired_samples=10, reuse_ratio=3.0, max_age=5)
    assert many.ring_size(100) == 4 * 10
    assert many.ring_size(1) == 30
    assert FromComponents(desired_samples=10, reuse_ratio=3.0, max_age=5).ring_size(100) == 3000


@pytest.mark.slow
def test_a_state_goes_from_one_set_of_bounds_to_another_and_back():
    algorithm = GMMVI.from_codename(
        "saptron",
        sample_selector={"desired_samples": 20, "reuse_ratio": 1.5, "max_age": 4},
        component_adaptation={"add_iters": 3, "del_iters": 5, "database_size": 50},
    )
    masked, target = algorithm.masked(BOUNDS), tiny(dtype="float32").target
    region = InitialRegion.build(2, 0.0, 3.0, 9.0)
    mixture, prior = region.mixture(jax.random.key(1), 3, jnp.dtype("float32"))
    state = masked.init(0, mixture, prior, 8)
    for _ in range(4):
        state, _ = masked.step(state, target)
    there = algorithm.fitted(state)
    like = jax.eval_shape(lambda: algorithm.init(0, mixture, prior, 8))
    assert [a.shape for a in jax.tree.leaves(there)] == [a.shape for a in jax.tree.leaves(like)]
    back = masked.fitted(there)
    assert [a.shape for a in jax.tree.leaves(back)] == [a.shape for a in jax.tree.leaves(state)]
    for algo, one in ((masked, state), (algorithm, there), (masked, back)):
        after, info = algo.step(one, target)
        if algo is masked and one is state:
            expected, expected_info = after, info
        np.testing.assert_allclose(
            after.mixture.components.mean, expected.mixture.components.mean, rtol=1e-4, atol=1e-4
        )
        assert int(info.evaluations) == int(expected_info.evaluations)


@pytest.mark.parametrize("components", [1, 4])
def test_a_padded_start_is_the_start(components):
    region = InitialRegion.build(3, (0.5, -1.0, 2.0), 0.7, (1.0, 2.0, 3.0))
    key = jax.random.key(3)
    own, prior = region.mixture(key, components, jnp.dtype("float32"))
    padded, padded_prior = region.padded_mixture(key, components, 8, jnp.dtype("float32"))
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(padded), strict=True):
        np.testing.assert_array_equal(a, b[:components])
    assert np.all(np.asarray(padded.log_weights[components:]) == -np.inf)
    for a, b in zip(jax.tree.leaves(prior), jax.tree.leaves(padded_prior), strict=True):
        np.testing.assert_array_equal(a, b)
    # Components that are added later are numbered after the present ones.
    algorithm = GMMVI.from_codename("semtrux")
    assert int(algorithm.init(0, padded, prior, 8).births) == components
    assert int(algorithm.init(0, own, prior, 8).births) == components
