"""Sums over the pairs of sample and component that matter, against the dense sums in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plans import GPU, XLA
from scipy.stats import multivariate_normal

from natmix.gaussians import FullGaussians
from natmix.kernels import relevant_blocks, scores, stein_sums
from natmix.kernels.plan import using
from natmix.kernels.relevant_blocks import RelevantBlocks

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


def score(c, r, x, count=None):
    return scores.weighted_score(c.g, r, x, count, "sparse")


def moments(c, w, x, count=None):
    return stein_sums.stein(c.g, w, x, c.v, count, "sparse")


def curvature(c, moment):
    product = np.einsum("kij,kjl->kil", moment, np.asarray(c.g.scale_tril))
    return 0.5 * (product + product.transpose(0, 2, 1))


@APART
@pytest.mark.parametrize("block", [7, 30, 128])
def test_they_are_the_dense_sums(apart, block, monkeypatch):
    monkeypatch.setattr(relevant_blocks, "_BLOCK", block)
    c = Case(apart)
    close(score(c, c.r, c.x), c.score(c.r, c.x))
    found, gradient = moments(c, c.w, c.x)
    close(found, curvature(c, c.moment(c.w, c.x)))
    close(gradient, np.einsum("kji,nk,nj->ki", c.g.scale_tril, c.w, c.v))


@APART
def test_single_precision_loses_no_more_than_rounding(apart):
    c = Case(apart, jnp.float32)
    close(score(c, c.r, c.x), c.score(c.r, c.x), 3e-5)
    close(moments(c, c.w, c.x)[0], curvature(c, c.moment(c.w, c.x)), 3e-5)


def test_few_blocks_matter_when_components_are_apart(monkeypatch):
    monkeypatch.setattr(relevant_blocks, "_BLOCK", S)
    far, near = (RelevantBlocks.of(Case(apart).r, 1.0, None) for apart in (20.0, 0.0))
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
    found = score(c, r, x, jnp.asarray(count))
    close(found[:count], c.score(r, c.x)[:count])
    assert not np.any(found[count:])
    w = c.w.at[:, 2].set(0.0).at[count:].set(0.0)
    hessian, _ = moments(c, w, x, jnp.asarray(count))
    close(hessian, curvature(c, c.moment(w, c.x)))
    assert not np.any(hessian[2])


def test_what_is_not_a_number_is_not_hidden():
    c = Case(20.0)
    assert np.isnan(score(c, c.r.at[3, 1].set(jnp.nan), c.x)[3]).all()
    assert np.isnan(moments(c, c.w.at[3, 1].set(jnp.nan), c.x)[0][1]).all()


def test_runs_together_are_runs_apart():
    cases = [Case(0.0), Case(20.0)]
    counts = jnp.asarray([N, S + 3])
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *[(c.g, c.r, c.w, c.x, c.v) for c in cases])

    def both(g, r, w, x, v, count):
        real = (jnp.arange(N) < count)[:, None]
        hessian, _ = stein_sums.stein(g, jnp.where(real, w, 0), x, v, count, "sparse")
        return scores.weighted_score(g, r, x, count, "sparse"), hessian

    together = jax.jit(jax.vmap(both))(*stacked, counts)
    for i, c in enumerate(cases):
        apart = both(c.g, c.r, c.w, c.x, c.v, counts[i])
        jax.tree.map(lambda a, b, i=i: close(a[i], b, 1e-12), together, apart)


def test_all_components_at_once_as_on_an_accelerator():
    c = Case(0.4)
    with using(XLA):
        expected = score(c, c.r, c.x), moments(c, c.w, c.x)[0]
    with using(GPU):
        close(score(c, c.r, c.x), expected[0], 1e-12)
        close(moments(c, c.w, c.x)[0], expected[1], 1e-12)
