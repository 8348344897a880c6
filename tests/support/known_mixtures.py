"""Mixtures of spherical Gaussians, and targets that are known mixtures."""

import numpy as np

from natmix import JaxTarget, Mixture


def spherical(weights, means, scale=1.0):
    means = np.atleast_2d(np.asarray(means, float))
    D = means.shape[1]
    return Mixture.full(weights, means, np.broadcast_to(scale**2 * np.eye(D), (len(means), D, D)))


def target_of(mixture: Mixture) -> JaxTarget:
    """A target with log evidence 3."""
    return JaxTarget(lambda x: mixture.log_prob(x) + 3.0, mixture.dim)
