"""Mixtures, targets and batches that several test files use."""

import jax
import jax.numpy as jnp
import numpy as np

from natmix import JaxTarget, Mixture
from natmix.modules.records import Batch


def random_covariances(rng, K, D, condition=10.0):
    """K covariances with eigenvalues between 1/condition and 1, in random directions."""
    out = []
    for _ in range(K):
        Q, _ = np.linalg.qr(rng.normal(size=(D, D)))
        values = np.exp(rng.uniform(-np.log(condition), 0, size=D))
        out.append((Q * values) @ Q.T)
    return np.array(out)


def random_mixture(seed, K, D, *, diagonal=False, spread=1.5, condition=10.0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(3 * np.ones(K)).astype(dtype)
    means = (spread * rng.normal(size=(K, D))).astype(dtype)
    if diagonal:
        return Mixture.diagonal(weights, means, rng.uniform(0.3, 1.5, size=(K, D)).astype(dtype))
    return Mixture.full(weights, means, random_covariances(rng, K, D, condition).astype(dtype))


def mixture_target(mixture):
    return JaxTarget(mixture.log_prob, mixture.dim)


def draw(mixture, seed, counts):
    """Samples from the components, ``counts`` from each, and their sources."""
    keys = jax.random.split(jax.random.key(seed), len(counts))
    xs, sources = [], []
    for k, n in enumerate(counts):
        noise = jax.random.normal(keys[k], (1, n, mixture.dim), mixture.dtype)
        component = jax.tree.map(lambda a, k=k: a[k : k + 1], mixture.components)
        xs.append(component.colour(noise)[0])
        sources.append(jnp.full(n, k))
    return jnp.concatenate(xs), jnp.concatenate(sources)


def make_batch(mixture, x, log_target, gradient=None, log_background=None, source=None):
    """A batch of valid samples; the background is the mixture itself unless given."""
    n = x.shape[0]
    log_z = mixture.log_prob(x) if log_background is None else log_background
    return Batch(
        x=jnp.asarray(x),
        log_target=jnp.asarray(log_target),
        gradient=None if gradient is None else jnp.asarray(gradient),
        log_background=jnp.asarray(log_z),
        log_components=mixture.component_log_prob(x),
        source=jnp.full(n, -1) if source is None else jnp.asarray(source),
        near=jnp.zeros(n, jnp.int32),
        valid=jnp.ones(n, bool),
        zero=jnp.zeros(n, bool),
        count=jnp.asarray(n),
    )


def _factors(gaussians):
    return gaussians.scale_tril, gaussians.mean


def gaussian_kl(new, old):
    """KL(new || old) of rows of Gaussians, in NumPy float64 from their factors."""
    out = []
    tril, mean = (
        [np.asarray(a, np.float64) for a in pair] for pair in zip(*map(_factors, (new, old)), strict=True)
    )
    for L1, L0, shift in zip(*tril, mean[0] - mean[1], strict=True):
        whitened = np.linalg.solve(L0, np.column_stack([L1, shift]))
        log_ratio = np.sum(np.log(np.diag(L0))) - np.sum(np.log(np.diag(L1)))
        out.append(0.5 * (np.sum(whitened**2) - L1.shape[0]) + log_ratio)
    return np.array(out)
