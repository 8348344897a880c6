"""A random mixture of Student-t distributions: equal weights, scale matrices (A^T A + I)^-1.

As published, 10 components with means uniform in [-20, 20], but 20 in [-25, 25] for 300 dimensions; here
the second setting holds from 300 dimensions on.
"""

import math
from typing import Any

import equinox as eqx
import jax
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

DEGREES_OF_FREEDOM = 2.0
MANY_DIMENSIONS = 300
_NO_VARIANCE = "with two degrees of freedom the target has no finite variance, so this is infinite"


class StudentMixture(AbstractEllipticalMixture):
    """Log of (1/K) sum_k t(x; m_k, L_k L_k^T, nu)."""

    shape: FullGaussians
    log_constant: Float[Array, " K"]
    degrees_of_freedom: float = eqx.field(static=True)

    def log_profile(self, squared: Float[Array, "N K"]) -> Float[Array, "N K"]:
        nu = self.degrees_of_freedom
        return -0.5 * (nu + self.shape.dim) * jnp.log1p(squared / nu)

    def stretch(self, key: PRNGKey, n: int) -> Float[Array, " n"]:
        nu = self.degrees_of_freedom
        return jnp.sqrt(nu / (2 * jax.random.gamma(key, nu / 2, (n,), self.shape.dtype)))


def stm(
    name: str,
    title: str,
    seed: int,
    dtype: Any,
    *,
    dim: int,
    components: int | None = None,
    spread: float | None = None,
) -> Problem:
    """The mixture drawn from the seed.

    Args:
        name: of the problem.
        title: of the problem.
        seed: from which the mixture is drawn.
        dtype: of its arrays.
        dim: D.
        components: of the target; 10 if left out, 20 from 300 dimensions on.
        spread: the means are uniform in [-spread, spread]; 20 if left out, 25 from 300 dimensions on.
    """
    many = dim >= MANY_DIMENSIONS
    K = check_components(components if components is not None else (20 if many else 10))
    wide = check_spread(spread if spread is not None else (25.0 if many else 20.0))
    mean, precision = draw_parameters(seed, K, dim, wide)
    shape, half_log_det = _factors(mean, precision)
    constant = _log_normaliser(dim, DEGREES_OF_FREEDOM) - half_log_det - np.log(K)
    density = StudentMixture(
        FullGaussians(*(jnp.asarray(a, dtype) for a in shape)),
        jnp.asarray(constant, dtype),
        DEGREES_OF_FREEDOM,
    )
    region = InitialRegion.build(dim, mean=0, mean_scale=100, variance=300)
    infinite = dict.fromkeys(("eubo", "forward_ess", "sliced_wasserstein"), _NO_VARIANCE)
    return elliptical_problem(name, title, density, region, infinite)


def _factors(
    mean: np.ndarray, precision: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Mean, L and L^-1 with (L L^T)^-1 = P, and log |L|, without inverting P.

    In float32 the scale matrix itself, with a condition number of a million, would not be accurate enough.
    """
    flipped = np.linalg.cholesky(precision[:, ::-1, ::-1])
    inverse = flipped[:, ::-1, ::-1].transpose(0, 2, 1)  # lower triangular, P = inverse^T inverse
    half_log_det = -np.sum(np.log(np.diagonal(inverse, axis1=1, axis2=2)), axis=1)
    return (mean, np.tril(np.linalg.inv(inverse)), inverse), half_log_det


def _log_normaliser(dim: int, nu: float) -> float:
    return math.lgamma((nu + dim) / 2) - math.lgamma(nu / 2) - 0.5 * dim * math.log(nu * math.pi)
