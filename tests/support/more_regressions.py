"""MORE's estimates of small mixtures, and the dense regressions in NumPy that they are compared with."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from helpers import draw, make_batch, random_mixture

from natmix import Mixture
from natmix.modules.ng_estimators import More
from natmix.modules.per_component import PerComponent

ONE, PENALTY = jnp.asarray(1.0), jnp.asarray(30.0)
RIDGE = 1e-7


def regression(mixture, batch, *, self_normalised=True, own=False, ridge=RIDGE, T=1.0):
    """A and a of every component by weighted least squares with a constant, over all samples in float64."""
    count = int(batch.count)
    real = np.arange(len(batch.x)) < count
    x, r, log_z = (np.asarray(a, np.float64) for a in (batch.x, batch.log_target, batch.log_background))
    log_c, zero = np.asarray(batch.log_components, np.float64), np.asarray(batch.zero)
    valid = np.asarray(batch.valid) & real
    reward = r - T * np.logaddexp.reduce(log_c + np.asarray(mixture.log_weights, np.float64), axis=1)
    D = x.shape[1]
    low = np.tril_indices(D, -1)
    A, a = [], []
    for k, (m, S) in enumerate(zip(np.asarray(mixture.means), np.asarray(mixture.covariances), strict=True)):
        L = np.linalg.cholesky(np.asarray(S, np.float64))
        w = (np.asarray(batch.source) == k).astype(float) if own else np.exp(log_c[:, k] - log_z)
        w = np.where(valid, w, 0)
        n = (w > 0).sum() if own else count
        w = w / w.sum() if self_normalised else w / n
        inside = w[~zero].sum()
        R = np.where(valid, np.where(zero, reward - 30 * (w.sum() / inside - 1), reward), 0)
        y = np.linalg.solve(L, np.where(valid[:, None], x - m, 0).T).T
        cross = [] if mixture.covariance_family == "diagonal" else [y[:, low[0]] * y[:, low[1]]]
        phi = np.concatenate([y * y - 1, *cross, y], axis=1)
        centred = phi - w @ phi / w.sum()
        gram = centred.T @ (centred * w[:, None]) + ridge * np.eye(phi.shape[1])
        beta = np.linalg.solve(gram, centred.T @ (w * (R - w @ R / w.sum())))
        hessian = np.diag(2 * beta[:D])
        if mixture.covariance_family != "diagonal":
            hessian[low] = beta[D:-D]
            hessian.T[low] = beta[D:-D]
        A.append(-np.diag(hessian) if mixture.covariance_family == "diagonal" else -hessian)
        a.append(-beta[-D:])
    return np.array(A), np.array(a)


def bumpy(x):
    return -jnp.sum(jnp.abs(x) ** 1.5, axis=1) + jnp.sin(3 * x[:, 0])


def case(spread=1.5, *, seed=4, K=5, D=3, n=200, diagonal=False, dtype=np.float64):
    mixture = random_mixture(seed, K, D, diagonal=diagonal, spread=spread, dtype=dtype)
    x, source = draw(mixture, 1, [n] * K)
    shuffled = np.random.default_rng(0).permutation(len(x))
    x, source = x[shuffled], source[shuffled]
    return mixture, make_batch(mixture, x, bumpy(x), source=source)


def estimate(mixture, batch, *, ridge=RIDGE, **flags):
    state = PerComponent.full(mixture.num_components, jnp.asarray(ridge, mixture.dtype))
    one, penalty = ONE.astype(mixture.dtype), PENALTY.astype(mixture.dtype)
    return compiled(tuple(flags.items()))(state, mixture, batch, one, penalty)


@functools.cache
def compiled(flags):
    """Of one option; JAX compiles it for each plan."""
    option = More(**dict(flags))
    return jax.jit(lambda *arguments: option.estimate(*arguments))


def check(got, expected, rtol=1e-7):
    assert np.all(got.ok)
    for value, wanted in zip((got.curvature, got.gradient), expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


def padded(mixture, batch, rows, columns):
    """More rows of samples without meaning, and more components that are absent."""
    n = batch.log_components.shape[0]

    def more(a):
        junk = jnp.full((rows, *a.shape[1:]), 7, a.dtype)
        return jnp.concatenate([a, junk]) if a.ndim and a.shape[0] == n else a

    batch = jax.tree.map(more, batch)
    log_c = jnp.concatenate([batch.log_components, jnp.full((n + rows, columns), 3.0)], axis=1)
    valid = jnp.arange(n + rows) < n
    batch = dataclasses.replace(batch, log_components=log_c, valid=valid, zero=batch.zero & valid)
    gaussians = jax.tree.map(lambda a: jnp.concatenate([a, a[:columns]]), mixture.components)
    return Mixture(jnp.pad(mixture.log_weights, (0, columns), constant_values=-jnp.inf), gaussians), batch


def with_zeros(mixture, batch):
    """The batch with a density of zero at some of the samples on one side."""
    zero = (batch.x[:, 0] > mixture.means[:, 0].mean() + 0.1) & (jnp.arange(len(batch.x)) % 3 > 0)
    assert jnp.any(zero)
    log_target = jnp.where(zero, jnp.min(batch.log_target) - 30, batch.log_target)
    return mixture, dataclasses.replace(batch, zero=zero, log_target=log_target)


def with_invalid_samples(mixture, batch):
    """The batch with every fourth sample invalid."""
    valid = jnp.arange(len(batch.x)) % 4 > 0
    return mixture, dataclasses.replace(batch, valid=valid, log_target=jnp.where(valid, batch.log_target, 0))


def check_padding(mixture, batch):
    """Samples beyond the count and absent components change nothing."""
    K = mixture.num_components
    alone, beside = estimate(mixture, batch), estimate(*padded(mixture, batch, 2000, 3))
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(beside), strict=True):
        np.testing.assert_allclose(a, b[:K], rtol=1e-10, atol=1e-10)
    assert not np.any(beside.curvature[K:])
    assert not np.any(beside.gradient[K:])
