"""Which samples are drawn, how many, and from which density they come."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_mixture
from scipy.stats import multivariate_normal

from natmix import Mixture
from natmix.modules.sample_selectors import FromComponents, FromMixture

PENALTY = jnp.asarray(30.0)


def moved(mixture, by):
    return Mixture(
        mixture.log_weights,
        type(mixture.components)(mixture.means + by, *jax.tree.leaves(mixture.components)[1:]),
    )


def standard(x):
    return -0.5 * jnp.sum(x * x, axis=1)


@eqx.filter_jit
def ask_and_tell(selector, state, key, iteration, mixture, target):
    draws = selector.ask(state, key, iteration, mixture, jnp.arange(mixture.num_components))
    value = target(draws.x)
    return draws, *selector.tell(state, draws, value, -draws.x, iteration, mixture, PENALTY)


def run(selector, mixtures, seed=0, target=standard):
    """Iterations with a given mixture each; the draws and batches of all of them."""
    state, out = selector.init(mixtures[0], True), []
    for i, mixture in enumerate(mixtures):
        iteration = jnp.asarray(i, jnp.int32)
        key = jax.random.fold_in(jax.random.key(seed), i)
        draws, state, batch = ask_and_tell(selector, state, key, iteration, mixture, target)
        out.append((draws, batch))
    return out


def density(means, covs, counts, x):
    """log of the mixture of Gaussians weighted by counts, by SciPy."""
    parts = [c * multivariate_normal(m, S).pdf(x) for m, S, c in zip(means, covs, counts, strict=True)]
    return np.log(np.sum(parts, axis=0) / np.sum(counts))


@pytest.mark.parametrize("diagonal", [False, True])
def test_m_draws_the_same_number_from_every_component(diagonal):
    mixture = random_mixture(0, 3, 2, diagonal=diagonal)
    [(draws, batch)] = run(FromComponents(desired_samples=500), [mixture])
    assert int(draws.count) == 1500
    for k in range(3):
        x = np.asarray(draws.x[:1500][np.asarray(draws.source[:1500]) == k])
        assert len(x) == 500
        np.testing.assert_allclose(x.mean(axis=0), mixture.means[k], atol=0.25)
        np.testing.assert_allclose(np.cov(x.T), mixture.covariances[k], atol=0.35)
    wanted = density(mixture.means, mixture.covariances, [500] * 3, np.asarray(batch.x))
    np.testing.assert_allclose(batch.log_background, wanted, rtol=1e-9)


def test_p_draws_from_the_mixture_and_its_background_counts_what_was_drawn():
    mixture = random_mixture(1, 4, 3)
    [(draws, batch)] = run(FromMixture(desired_samples=4000), [mixture])
    assert int(draws.count) == 4000
    drawn = np.bincount(np.asarray(draws.source), minlength=4)
    np.testing.assert_allclose(drawn / 4000, mixture.weights, atol=0.035)
    wanted = density(mixture.means, mixture.covariances, drawn, np.asarray(batch.x))
    np.testing.assert_allclose(batch.log_background, wanted, rtol=1e-9)


def test_p_per_component_multiplies():
    mixture = random_mixture(1, 4, 3)
    [(draws, _)] = run(FromMixture(desired_samples=50, per_component=True), [mixture])
    assert int(draws.count) == 200


@pytest.mark.parametrize("selector", [FromComponents, FromMixture])
def test_reused_samples_and_their_background(selector):
    """Exact: the newest floor(ratio * desired) * K samples, under all Gaussians that drew them."""
    start = random_mixture(2, 3, 2)
    mixtures = [moved(start, 0.1 * i) for i in range(4)]
    option = selector(desired_samples=30, reuse_ratio=1.5)
    history = run(option, mixtures)
    all_x = np.concatenate([np.asarray(d.x[: int(d.count)]) for d, _ in history])
    born = np.concatenate([np.full(int(d.count), i) for i, (d, _) in enumerate(history)])
    source = np.concatenate([np.asarray(d.source[: int(d.count)]) for d, _ in history])
    draws, batch = history[-1]
    old = int(np.sum(born < 3))
    reused = min(45 * 3, old)
    selected = np.arange(old - reused, len(all_x))
    n = int(batch.count)
    assert n == len(selected)
    got, want = np.asarray(batch.x[:n]), all_x[selected]
    np.testing.assert_allclose(got[np.lexsort(got.T)], want[np.lexsort(want.T)])
    means, covs, counts = [], [], []
    for i in range(4):
        for k in range(3):
            means.append(mixtures[i].means[k])
            covs.append(mixtures[i].covariances[k])
            counts.append(np.sum((born[selected] == i) & (source[selected] == k)))
    np.testing.assert_allclose(batch.log_background[:n], density(means, covs, counts, got), rtol=1e-9)
    assert int(jnp.sum(batch.source[:n] >= 0)) == int(draws.count)


def test_m_draws_what_is_missing_to_the_desired_effective_size():
    """n_eff(o) of the old samples by its definition, and max(1, desired - floor(n_eff))."""
    start = random_mixture(3, 3, 2)
    mixtures = [start, moved(start, 0.3)]
    option = FromComponents(desired_samples=60, reuse_ratio=1.0)
    (first, _), (second, _) = run(option, mixtures)
    x = np.asarray(first.x)
    log_z = density(start.means, start.covariances, [60] * 3, x)
    w = np.exp(np.asarray(mixtures[1].component_log_prob(x)) - log_z[:, None])
    n_eff = w.sum(axis=0) ** 2 / (w**2).sum(axis=0)
    drawn = np.bincount(np.asarray(second.source[: int(second.count)]), minlength=3)
    np.testing.assert_array_equal(drawn, np.maximum(1, 60 - np.floor(n_eff)))


def test_p_draws_what_is_missing_for_the_whole_mixture():
    start = random_mixture(3, 3, 2)
    mixtures = [start, moved(start, 0.3)]
    (first, _), (second, _) = run(FromMixture(desired_samples=90, reuse_ratio=0.4), mixtures)
    x = np.asarray(first.x)
    drawn = np.bincount(np.asarray(first.source), minlength=3)
    w = np.exp(np.asarray(mixtures[1].log_prob(x)) - density(start.means, start.covariances, drawn, x))
    n_eff = w.sum() ** 2 / (w**2).sum()
    assert int(second.count) == max(1, 90 - int(n_eff))


def test_unchanged_components_need_one_new_sample_each():
    mixture = random_mixture(4, 2, 2)
    history = run(FromComponents(desired_samples=20, reuse_ratio=4.0), [mixture] * 8)
    assert [int(d.count) for d, _ in history][-1] == 2
    none = run(FromComponents(desired_samples=20, reuse_ratio=4.0, min_new_samples=0), [mixture] * 8)
    assert [int(d.count) for d, _ in none][-1] == 0


def test_samples_beyond_max_age_are_not_reused():
    mixture = random_mixture(4, 2, 2)
    history = run(FromComponents(desired_samples=20, reuse_ratio=4.0, max_age=3), [mixture] * 12)
    for i, (_, batch) in enumerate(history):
        drawn = [int(d.count) for d, _ in history[max(0, i - 2) : i + 1]]
        assert int(batch.count) == sum(drawn)


def test_invalid_and_zero_values_are_marked_and_never_reused():
    mixture = random_mixture(5, 2, 2)

    def target(x):
        value = -0.5 * jnp.sum(x * x, axis=1)
        value = jnp.where(jnp.arange(len(x)) % 10 == 0, jnp.nan, value)
        value = jnp.where(jnp.arange(len(x)) % 10 == 1, jnp.inf, value)
        return jnp.where(jnp.arange(len(x)) % 10 == 2, -jnp.inf, value)

    (_, batch), (_, later) = run(
        FromComponents(desired_samples=50, reuse_ratio=1.0), [mixture] * 2, target=target
    )
    assert int(batch.valid.sum()) == 80
    assert int(batch.zero.sum()) == 10
    assert bool(jnp.all(jnp.isfinite(batch.log_target)))
    old = (later.source < 0) & (jnp.arange(later.x.shape[0]) < later.count)
    assert int(old.sum()) == 80
    assert bool(jnp.all(later.valid[old]))
    assert int(later.zero[old].sum()) == 10


def test_draws_do_not_depend_on_rows_or_padding():
    mixture = random_mixture(6, 3, 2)
    option = FromComponents(desired_samples=10)
    order = jnp.array([2, 0, 1])
    shuffled = Mixture(mixture.log_weights[order], mixture.components.take(order))
    key = jax.random.key(0)
    one = option.ask(None, key, jnp.asarray(0), mixture, jnp.array([7, 8, 9]))
    two = option.ask(None, key, jnp.asarray(0), shuffled, jnp.array([9, 7, 8]))
    a, b = np.asarray(one.x).reshape(3, 10, 2), np.asarray(two.x).reshape(3, 10, 2)
    np.testing.assert_allclose(b, a[np.asarray(order)], rtol=1e-12)
