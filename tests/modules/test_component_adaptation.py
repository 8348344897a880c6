"""Adding and deleting on cases where the right answer is known."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_mixture

from natmix import Mixture
from natmix.kernels.gaussian_batch import LOG_2PI
from natmix.modules.component_adaptation import FixedComponents, Vips
from natmix.modules.component_adaptation.base import EvaluatedSamples
from natmix.modules.component_adaptation.reservoir import Reservoir
from natmix.modules.component_adaptation.vips import PAPER_THRESHOLDS as THRESHOLDS
from natmix.modules.component_stepsizes.base import Rewards

ONE = jnp.asarray(1.0)


def prior(D, scale=3.0):
    return Mixture.full([1.0], jnp.zeros((1, D)), scale**2 * jnp.eye(D)[None])


def no_candidates(D):
    return EvaluatedSamples(jnp.zeros((0, D)), jnp.zeros(0), jnp.zeros(0, bool))


def adapt(option, state, mixture, samples, iteration=30, rewards=None, seed=0, T=1.0, candidates=None):
    K, D = mixture.num_components, mixture.dim
    rewards = rewards or Rewards(jnp.zeros(K), jnp.full(K, 5))
    return option.adapt(
        state,
        jax.random.key(seed),
        jnp.asarray(iteration),
        mixture,
        rewards,
        samples,
        candidates or no_candidates(D),
        prior(D),
        jnp.asarray(T),
    )


def points(x, log_target):
    x = jnp.asarray(x)
    return EvaluatedSamples(x, jnp.asarray(log_target), jnp.ones(len(x), bool))


def test_fixed_never_changes_anything():
    mixture = random_mixture(0, 3, 2)
    _, change = adapt(FixedComponents(), None, mixture, points(jnp.zeros((4, 2)), jnp.zeros(4)))
    assert not bool(change.add)
    assert not bool(change.delete.any())


@pytest.mark.parametrize("database_size", [0, 500])
def test_the_best_candidate_becomes_the_new_mean(database_size):
    """argmax of log p~ - max(log q, max log q - d); the first addition uses d = 1000, then 500, ..."""
    rng = np.random.default_rng(0)
    mixture = random_mixture(1, 2, 2)
    x = rng.normal(size=(200, 2)) * 20
    log_target = -0.5 * np.sum((x - 30) ** 2, axis=1)
    option = Vips(add_iters=30, database_size=database_size)
    state = option.init(mixture, prior(2))
    log_q = np.asarray(mixture.log_prob(x))
    for turn in range(7):
        state, change = adapt(option, state, mixture, points(x, log_target), seed=turn)
        d = THRESHOLDS[(turn + 1) % 6]
        best = np.argmax(log_target - np.maximum(log_q, log_q.max() - d))
        assert bool(change.add)
        np.testing.assert_allclose(change.mean, x[best])
        np.testing.assert_allclose(change.gain, log_target[best] - log_q[best], rtol=1e-9)
        np.testing.assert_allclose(jnp.exp(change.log_weight), 1e-29, rtol=1e-5)
    assert int(state.additions) == 7


def test_the_entropy_of_a_new_component_lies_uniformly_between_model_and_prior():
    mixture = random_mixture(1, 2, 3)
    option = Vips(database_size=0)
    state = option.init(mixture, prior(3))
    samples = points(np.ones((5, 3)), np.zeros(5))
    scales = jax.vmap(
        lambda k: (
            option.adapt(
                state,
                k,
                jnp.asarray(30),
                mixture,
                Rewards(jnp.zeros(2), jnp.full(2, 5)),
                samples,
                no_candidates(3),
                prior(3),
                ONE,
            )[1].scale
        )
    )(jax.random.split(jax.random.key(0), 300))
    entropy = 3 * np.log(np.asarray(scales)) + 1.5 * (1 + LOG_2PI)
    model = float(jnp.sum(mixture.weights * mixture.components.entropy()))
    wide = float(prior(3).components.entropy()[0])
    share = (entropy - wide) / (model - wide)
    assert 0 <= share.min() < 0.02
    assert 0.98 < share.max() <= 1
    np.testing.assert_allclose([share.mean(), share.std()], [0.5, np.sqrt(1 / 12)], atol=0.05)


@pytest.mark.parametrize(("iteration", "due"), [(0, False), (29, False), (30, True), (31, False), (60, True)])
def test_additions_come_every_add_iters_but_not_first(iteration, due):
    mixture = random_mixture(1, 2, 2)
    option = Vips(add_iters=30)
    _, change = adapt(
        option, option.init(mixture, prior(2)), mixture, points(np.ones((3, 2)), np.zeros(3)), iteration
    )
    assert bool(change.add) == due


def test_no_addition_beyond_the_maximum_or_without_a_usable_candidate():
    mixture = random_mixture(1, 2, 2)
    full = Vips(max_components=2)
    _, change = adapt(full, full.init(mixture, prior(2)), mixture, points(np.ones((3, 2)), np.zeros(3)))
    assert not bool(change.add)
    option = Vips()
    hopeless = points(np.ones((3, 2)), [-np.inf, np.nan, np.inf])
    _, change = adapt(option, option.init(mixture, prior(2)), mixture, hopeless)
    assert not bool(change.add)


def test_prior_candidates_compete_and_come_from_the_prior():
    mixture = random_mixture(1, 2, 2)
    option = Vips(prior_candidates=400)
    x = option.candidates(jax.random.key(0), prior(2))
    np.testing.assert_allclose(np.cov(np.asarray(x).T), 9 * np.eye(2), atol=1.5)
    value = jnp.full(400, -1e4).at[17].set(1e3)
    fresh = EvaluatedSamples(x, value, jnp.ones(400, bool))
    _, change = adapt(
        option,
        option.init(mixture, prior(2)),
        mixture,
        points(np.ones((3, 2)), np.zeros(3)),
        candidates=fresh,
    )
    np.testing.assert_allclose(change.mean, x[17])
    unasked = EvaluatedSamples(x, value, jnp.zeros(400, bool))
    _, change = adapt(
        option,
        option.init(mixture, prior(2)),
        mixture,
        points(np.ones((3, 2)), np.zeros(3)),
        candidates=unasked,
    )
    np.testing.assert_allclose(change.mean, [1, 1])


# Deletion ----------------------------------------------------------------------------------------


@functools.cache
def compiled_replay(del_iters, K):
    """One program that runs whole histories through the option."""
    option = Vips(del_iters=del_iters, add_iters=10**6, database_size=0, database_candidates=0)
    base = random_mixture(2, K, 2)
    nothing = points(np.zeros((1, 2)), [0.0])

    @jax.jit
    def run(rewards, weights, records, T):
        def step(state, row):
            i, reward, weight, count = row
            mixture = Mixture(jnp.log(weight), base.components)
            state, change = option.adapt(
                state,
                jax.random.key(0),
                i,
                mixture,
                Rewards(reward, count),
                nothing,
                no_candidates(2),
                prior(2),
                T,
            )
            return state, change.delete

        rows = (1000 + jnp.arange(len(rewards)), rewards, weights, records)
        return jax.lax.scan(step, option.init(base, prior(2)), rows)[1]

    return run


def replay(rewards, weights, del_iters, T=1.0, records=None):
    """Feed histories [n, K], oldest first; returns which components go at every iteration."""
    n, K = rewards.shape
    if records is None:
        records = np.tile(np.arange(1, n + 1)[:, None], (1, K))
    run = compiled_replay(del_iters, K)
    return np.asarray(run(jnp.asarray(rewards), jnp.asarray(weights), jnp.asarray(records), jnp.asarray(T)))


def histories(n, bad):
    """Component 0 is good; component 1 has the rewards ``bad`` and no weight."""
    rewards = np.column_stack([np.zeros(n), bad])
    weights = np.tile([1 - 1e-9, 1e-9], (n, 1))
    return rewards, weights


@pytest.mark.parametrize("del_iters", [9, 30])
def test_a_useless_component_goes_once_the_window_is_full(del_iters):
    window = del_iters + 2 * (del_iters // 3)
    gone = replay(*histories(window + 5, np.full(window + 5, -100.0)), del_iters)  # type: ignore[call-arg]
    assert not gone[: window - 1].any()
    assert gone[window - 1].tolist() == [False, True]


def test_rewards_far_from_zero_keep_their_precision():
    """The same histories a million nats lower, in float32."""
    n = 60
    for bad, goes in ((-400 * 0.9 ** np.arange(n) - 20, False), (np.full(n, -40.0), True)):
        rewards, weights = histories(n, bad)
        gone = replay((rewards - 1e6).astype(np.float32), weights.astype(np.float32), 30, T=np.float32(1))
        assert gone[-1, 1] == goes == replay(rewards, weights, 30)[-1, 1]


def test_an_improving_component_stays():
    n = 60
    gone = replay(*histories(n, -100 * 0.9 ** np.arange(n)), 30)  # type: ignore[call-arg]
    assert not gone.any()
    slow = replay(*histories(n, -100 * 0.999 ** np.arange(n)), 30)  # type: ignore[call-arg]
    assert slow[-1].tolist() == [False, True]


@pytest.mark.parametrize("when", [1, 25, 58])
def test_weight_within_the_window_saves_a_component(when):
    rewards, weights = histories(60, np.full(60, -100.0))
    weights[when] = [0.9, 0.1]
    gone = replay(rewards, weights, 30)
    window = 50
    assert gone[:, 1].tolist() == [i >= when + window or (i < when and i >= window - 1) for i in range(60)]


def test_a_large_greedy_weight_saves_a_component():
    """softmax(r/T): its reward is as good as the best, only its weight lags behind."""
    rewards, weights = histories(60, np.full(60, -1.0))
    assert not replay(rewards, weights, 30).any()
    rewards, weights = histories(60, np.full(60, -40.0))
    assert replay(rewards, weights, 30).any()
    assert not replay(rewards, weights, 30, T=10.0).any()


def test_several_go_at_once_and_the_heaviest_never():
    n = 60
    rewards = np.full((n, 3), -50.0)
    rewards[:, 0] = 0
    weights = np.tile([1.0, 1e-9, 1e-9], (n, 1))
    assert replay(rewards, weights, 30)[-1].tolist() == [False, True, True]
    alone = replay(np.full((n, 1), -50.0), np.ones((n, 1)), 30)
    assert not alone.any()


# The database ------------------------------------------------------------------------------------


def test_the_reservoir_stays_uniform_over_everything_seen():
    size, batch, batches, trials = 500, 70, 60, 400
    real = jnp.arange(batch) % 7 != 0

    def filled(key):
        def see(i, store):
            x = jnp.full((batch, 1), i.astype(float))
            return store.push(jax.random.fold_in(key, i), x, x[:, 0], real)

        return jax.lax.fori_loop(0, batches, see, Reservoir.empty(size, 1, jnp.float64))

    stores = jax.jit(jax.vmap(filled))(jax.random.split(jax.random.key(0), trials))
    assert np.all(np.asarray(stores.seen) == batches * 60)
    np.testing.assert_array_equal(stores.x[..., 0], stores.log_target)
    kept = np.array([np.bincount(x.astype(int), minlength=batches) for x in np.asarray(stores.x[..., 0])])
    error = kept.std(axis=0) / np.sqrt(trials)
    # 60 of a batch are real: the ninth finds room for 20, and the others do not enter.
    usual = np.arange(batches) != 8
    expected = size / (batches - 2 / 3)
    assert np.all(np.abs(kept.mean(axis=0) - expected)[usual] < 5 * error[usual])
    assert abs(kept[:, 8].mean() - expected / 3) < 5 * error[8]


def test_a_reservoir_that_is_smaller_than_one_call_keeps_any_of_its_samples():
    size, batch, trials = 100, 1000, 400
    x = jnp.arange(float(batch))[:, None]
    push = jax.vmap(
        lambda k: Reservoir.empty(size, 1, jnp.float64).push(k, x, x[:, 0], jnp.ones(batch, bool))
    )
    kept = np.asarray(push(jax.random.split(jax.random.key(0), trials)).x[..., 0])
    assert all(len(set(one)) == size for one in kept)
    # A call's samples are kept by runs of 100 from a random one on, around the end.
    times = np.bincount(kept.astype(int).ravel(), minlength=batch)
    expected = trials * size / batch
    assert np.all(np.abs(times - expected) < 5 * np.sqrt(expected))


def test_spread_covers_the_filled_part_evenly():
    store = Reservoir.empty(100, 1, jnp.float64)
    x = jnp.arange(40.0)[:, None]
    store = store.push(jax.random.key(0), x, x[:, 0], jnp.ones(40, bool))
    slots, real = store.spread(jax.random.key(1), 60)
    assert sorted(np.asarray(slots)[np.asarray(real)].tolist()) == list(range(40))
    slots, real = store.spread(jax.random.key(1), 10)
    assert bool(real.all())
    assert np.all(np.asarray(slots) // 4 == np.arange(10))
