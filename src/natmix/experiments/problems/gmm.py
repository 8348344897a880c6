"""A random Gaussian mixture: equal weights, means uniform in [-50, 50], covariances A^T A + I."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey
from natmix.experiments.problems.base import InitialRegion, Problem
from natmix.experiments.problems.elliptical import (
    AbstractEllipticalMixture,
    check_components,
    check_spread,
    draw_parameters,
    elliptical_problem,
)
from natmix.gaussians import FullGaussians

COMPONENTS = 10
SPREAD = 50.0


class GaussianMixture(AbstractEllipticalMixture):
    """Log of (1/K) sum_k N(x; m_k, L_k L_k^T)."""

    shape: FullGaussians
    log_constant: Float[Array, " K"]

    def log_profile(self, squared: Float[Array, "N K"]) -> Float[Array, "N K"]:
        return -0.5 * squared

    def stretch(self, key: PRNGKey, n: int) -> Float[Array, " n"]:
        return jnp.ones(n, self.shape.dtype)


def gmm(
    name: str,
    title: str,
    seed: int,
    dtype: Any,
    *,
    dim: int,
    components: int = COMPONENTS,
    spread: float = SPREAD,
) -> Problem:
    """The mixture drawn from the seed.

    Args:
        name: of the problem.
        title: of the problem.
        seed: from which the mixture is drawn.
        dtype: of its arrays.
        dim: D.
        components: of the target.
        spread: the means are uniform in [-spread, spread].
    """
    K = check_components(components)
    mean, covariance = draw_parameters(seed, K, dim, check_spread(spread))
    L = np.linalg.cholesky(covariance)
    log_det = 2 * np.sum(np.log(np.diagonal(L, axis1=1, axis2=2)), axis=1)
    constant = -0.5 * (dim * np.log(2 * np.pi) + log_det) - np.log(K)
    shape = FullGaussians(*(jnp.asarray(a, dtype) for a in (mean, L, np.tril(np.linalg.inv(L)))))
    density = GaussianMixture(shape, jnp.asarray(constant, dtype))
    region = InitialRegion.build(dim, mean=0, mean_scale=31.63, variance=1000)
    return elliptical_problem(name, title, density, region)
