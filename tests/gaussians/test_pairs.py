"""Sums over the pairs of sample and component that matter, against the dense sums in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from natmix.gaussians import FullGaussians, pairs
from natmix.gaussians.kernels import WhitenedKernel

K, D, S = 4, 45, 30
N = K * S


class Case:
    """Components ``apart`` by so many units in every coordinate, with samples of each."""

    def __init__(self, apart: float, dtype=jnp.float64):
        rng = np.random.default_rng(3)
        A = rng.normal(size=(K, D, D)) / np.sqrt(D)
        covariance = A @ A.transpose(0, 2, 1) + 0.3 * np.eye(D)
        mean = apart * rng.normal(size=(K, D))
        x = np.concatenate([rng.multivariate_normal(mean[k], covariance[k], S) for k in range(K)])
        log_prob = np.stack([multivariate_normal(mean[k], covariance[k]).logpdf(x) for k in range(K)], axis=1)
        joint = np.exp(log_prob - log_prob.max(1, keepdims=True))
        self.r = jnp.asarray(joint / joint.sum(1, keepdims=True), dtype)
        self.w = self.r / self.r.sum(0)
        self.x, self.v = jnp.asarray(x, dtype), jnp.asarray(rng.normal(size=x.shape), dtype)
        self.g = FullGaussians.from_covariance(jnp.asarray(mean, dtype), jnp.asarray(covariance, dtype))
        self.precision = np.linalg.inv(covariance)
        self.mean = mean

    def score(self, r, x):
        d = np.asarray(x, float)[:, None] - self.mean
        return -np.einsum("nk,kij,nkj->ni", np.asarray(r, float), self.precision, d)

    def moment(self, w, x):
        d = np.asarray(x, float)[:, None] - self.mean
        y = np.einsum("kij,nkj->nki", np.asarray(self.g.inverse_tril, float), d)
        return np.einsum("nk,nki,nj->kij", np.asarray(w, float), y, np.asarray(self.v, float))


APART = pytest.mark.parametrize("apart", [0.0, 0.4, 20.0])


def close(actual, expected, rtol=1e-9):
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def test_these_dimensions_go_by_pairs():
    c = Case(1.0)
    assert isinstance(c.g.kernel(), WhitenedKernel)
    assert c.g.goes_by_pairs(c.x)


@APART
@pytest.mark.parametrize("block", [7, 30, 128])
def test_they_are_the_dense_sums(apart, block, monkeypatch):
    monkeypatch.setattr(pairs, "_CPU_BLOCK", block)
    c = Case(apart)
    close(c.g.mixture_score(c.r, c.x), c.score(c.r, c.x))
    close(pairs.moments(c.g, c.w, c.x, c.v, None), c.moment(c.w, c.x))
    curvature, gradient = c.g.stein(c.w, c.x, c.v)
    product = np.einsum("kij,kjl->kil", c.moment(c.w, c.x), np.asarray(c.g.scale_tril))
    close(curvature, 0.5 * (product + product.transpose(0, 2, 1)))
    close(gradient, np.einsum("kji,nk,nj->ki", c.g.scale_tril, c.w, c.v))


@APART
def test_single_precision_loses_no_more_than_its_digits(apart):
    c = Case(apart, jnp.float32)
    close(c.g.mixture_score(c.r, c.x), c.score(c.r, c.x), 3e-5)
    close(pairs.moments(c.g, c.w, c.x, c.v, None), c.moment(c.w, c.x), 3e-5)


def test_few_blocks_matter_when_components_are_apart(monkeypatch):
    monkeypatch.setattr(pairs, "_CPU_BLOCK", S)
    far, near = (pairs.Pairs.of(Case(apart).r, 1.0, None) for apart in (20.0, 0.0))
    np.testing.assert_array_equal(far.counts, np.ones(K))
    np.testing.assert_array_equal(near.counts, np.full(K, K))
    first, weights = far.block(jnp.asarray(0))
    np.testing.assert_array_equal(first, np.arange(0, N, S))
    assert np.all(weights > 0.99)
    assert not np.any(far.block(jnp.asarray(1))[1])


def test_padding_and_components_without_samples_are_left_out():
    c = Case(0.4)
    count = 2 * S + 5
    r = c.r.at[:, 2].set(0.0)
    x = c.x.at[count:].set(jnp.nan)
    score = c.g.mixture_score(r, x, jnp.asarray(count))
    close(score[:count], c.score(r, c.x)[:count])
    assert not np.any(score[count:])
    w = c.w.at[:, 2].set(0.0).at[count:].set(0.0)
    moment = pairs.moments(c.g, w, x, c.v, jnp.asarray(count))
    close(moment, c.moment(w, c.x))
    assert not np.any(moment[2])


def test_what_is_not_a_number_is_not_hidden():
    c = Case(20.0)
    assert np.isnan(c.g.mixture_score(c.r.at[3, 1].set(jnp.nan), c.x)[3]).all()
    assert np.isnan(pairs.moments(c.g, c.w.at[3, 1].set(jnp.nan), c.x, c.v, None)[1]).all()


def test_runs_together_are_runs_apart():
    cases = [Case(0.0), Case(20.0)]
    counts = jnp.asarray([N, S + 3])
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *[(c.g, c.r, c.w, c.x, c.v) for c in cases])

    def both(g, r, w, x, v, count):
        real = (jnp.arange(N) < count)[:, None]
        return g.mixture_score(r, x, count), pairs.moments(g, jnp.where(real, w, 0), x, v, count)

    together = jax.jit(jax.vmap(both))(*stacked, counts)
    for i, c in enumerate(cases):
        apart = both(c.g, c.r, c.w, c.x, c.v, counts[i])
        jax.tree.map(lambda a, b, i=i: close(a[i], b, 1e-12), together, apart)


def test_all_components_at_once_as_on_an_accelerator(monkeypatch):
    c = Case(0.4)
    expected = c.g.mixture_score(c.r, c.x), pairs.moments(c.g, c.w, c.x, c.v, None)
    monkeypatch.setattr(pairs, "_at_once", lambda g: g.capacity)
    close(c.g.mixture_score(c.r, c.x), expected[0], 1e-12)
    close(pairs.moments(c.g, c.w, c.x, c.v, None), expected[1], 1e-12)
