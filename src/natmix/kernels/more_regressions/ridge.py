"""The weighted ridge regression of one component on its quadratic features."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natmix.array_types import Scalar
from natmix.kernels.gaussian_batch import GaussianBatch
from natmix.kernels.linalg import einsum

_REFINEMENTS = 3

SQUARES = 8
"""The most F x F matrices that a regression holds at a time."""

Moments = tuple[Float[Array, "F F"], Float[Array, " F"], Float[Array, " F"]]


def num_features(gaussians: GaussianBatch) -> int:
    """As many columns as features of one point."""
    return jax.eval_shape(gaussians.features, gaussians.mean).shape[1]


def feature_moments(
    gaussian: GaussianBatch, x: Float[Array, "B D"], w: Float[Array, " B"], r: Float[Array, " B"]
) -> Moments:
    """Weighted sums of phi phi^T, of phi r and of phi."""
    phi = gaussian.features(gaussian.whiten(x)[0])
    weighted = phi * w[:, None]
    return einsum("nf,ng->fg", weighted, phi), einsum("nf,n->f", weighted, r), jnp.sum(weighted, axis=0)


def ridge_regression(moments: Moments, total: Scalar, ridge: Scalar) -> Float[Array, " F"]:
    """Coefficients of the features; the constant is eliminated by centring. ``total`` is the sum of weights.

    The normal equations get at least the jitter that the floating-point type can resolve. Iterative
    refinement removes its bias wherever the samples determine the solution.
    """
    gram, rhs, mean = moments
    gram = gram - mean[:, None] * mean / total
    identity = jnp.eye(gram.shape[0], dtype=gram.dtype)
    system = gram + ridge * identity
    jitter = 10 * jnp.finfo(gram.dtype).eps * jnp.max(jnp.diagonal(gram))
    factor = jnp.linalg.cholesky(gram + jnp.maximum(ridge, jitter) * identity)

    def refine(beta: Float[Array, " F"], _: None) -> tuple[Float[Array, " F"], None]:
        residual = rhs - einsum("fg,g->f", system, beta)
        return beta + jax.scipy.linalg.cho_solve((factor, True), residual), None

    beta, _ = jax.lax.scan(refine, jnp.zeros_like(rhs), None, length=1 + _REFINEMENTS)
    return beta
