"""Weight updates against brute force."""

import jax.numpy as jnp
import numpy as np
import pytest

from natmix.modules.weight_updaters import OPTIONS, DirectWeightUpdater, TrustRegionWeightUpdater

FLOOR = 1e-30


def kl(p, q):
    some = p > 0
    return float(np.sum(p[some] * (np.log(p[some]) - np.log(q[some]))))


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def update(option, old, E, stepsize, T=1.0):
    new = option.update(jnp.log(jnp.asarray(old)), jnp.asarray(E), jnp.asarray(stepsize), jnp.asarray(T))
    return np.exp(np.asarray(new))


@pytest.mark.parametrize("T", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("stepsize", [0.0, 0.3, 1.0])
def test_direct_is_equation_9(stepsize, T):
    rng = np.random.default_rng(0)
    old, E = rng.dirichlet(np.ones(7)), 5 * rng.normal(size=7)
    wanted = softmax(np.log(old) + stepsize / T * E)
    np.testing.assert_allclose(
        update(DirectWeightUpdater(), old, E, stepsize, T), wanted, rtol=1e-10, atol=1e-29
    )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("T", [1.0, 2.0])
def test_trust_region_takes_the_longest_step_within_the_bound(seed, T):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 30))
    old = rng.dirichlet(np.ones(K))
    E = rng.normal(size=K) * np.exp(rng.uniform(-4, 10))
    bound = np.exp(rng.uniform(-7, 1.5))
    got = update(TrustRegionWeightUpdater(), old, E, bound, T)
    steps = np.exp(np.linspace(-30, 0, 200_001)) / T
    # Brute force over 200,001 steplengths, in blocks.
    best = 0.0
    for block in np.array_split(steps, 200):
        logits = np.log(old) + block[:, None] * E
        q = np.exp(logits - logits.max(axis=1, keepdims=True))
        q /= q.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.sum(np.where(q > 0, q * (np.log(q) - np.log(old)), 0), axis=1)
        inside = values <= bound
        if inside.any():
            best = max(best, float(block[inside].max()))
    wanted = softmax(np.log(old) + best * E)
    assert kl(got, old) <= bound * 1.001
    np.testing.assert_allclose(got, wanted, rtol=2e-2, atol=1e-3)
    full = softmax(np.log(old) + E / T)
    if kl(full, old) <= bound:
        np.testing.assert_allclose(got, full, rtol=1e-6, atol=1e-12)
    else:
        assert kl(got, old) >= bound * 0.99


@pytest.mark.parametrize("option", OPTIONS)
def test_absent_components_stay_absent_and_change_nothing(option):
    rng = np.random.default_rng(1)
    old, E = rng.dirichlet(np.ones(4)), rng.normal(size=4)
    alone = update(option(), old, E, 0.2)
    padded = update(
        option(),
        np.concatenate([old[:2], [0.0], old[2:], [0.0]]),
        np.array([*E[:2], 99.0, *E[2:], 99.0]),
        0.2,
    )
    np.testing.assert_allclose(padded[[0, 1, 3, 4]], alone, rtol=1e-10)
    assert padded[2] == padded[5] == 0


@pytest.mark.parametrize("option", OPTIONS)
def test_no_weight_falls_below_the_floor(option):
    new = update(
        option(),
        np.array([0.5, 0.5]),
        np.array([0.0, -1e6]),
        1e9 if option is TrustRegionWeightUpdater else 1.0,
    )
    np.testing.assert_allclose(new, [1.0, FLOOR], rtol=1e-6)


@pytest.mark.parametrize("option", OPTIONS)
def test_one_component_keeps_its_weight(option):
    assert update(option(), np.array([1.0]), np.array([-3.0]), 1.0) == 1.0


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("size", [1e-6, 1e4, 1e8])
def test_rewards_of_any_size_in_float32(option, size):
    rng = np.random.default_rng(2)
    old = jnp.log(jnp.asarray(rng.dirichlet(np.ones(5)), jnp.float32))
    E = jnp.asarray(size * rng.normal(size=5), jnp.float32)
    new = option().update(old, E, jnp.asarray(0.1, jnp.float32), jnp.asarray(1, jnp.float32))
    assert new.dtype == jnp.float32
    assert bool(jnp.all(jnp.isfinite(new)))
    np.testing.assert_allclose(np.exp(np.asarray(new, dtype=float)).sum(), 1, rtol=1e-5)
