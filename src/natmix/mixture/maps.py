"""Closed-form operations on mixtures: marginals, conditionals, affine maps, products."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from natmix.gaussians import AbstractGaussians
from natmix.mixture.checks import holds, known_dims, vector
from natmix.mixture.mixture import Mixture


def marginal(q: Mixture, dims: int | Sequence[int] | np.ndarray) -> Mixture:
    """`Mixture.marginal`."""
    return Mixture(q.log_weights, q.components.marginal(known_dims(dims, q.dim)))


def condition(q: Mixture, given: Mapping[int, float]) -> Mixture:
    """`Mixture.condition`."""
    if not given:
        return q
    fixed = known_dims(list(given), q.dim)
    free = np.array([d for d in range(q.dim) if d not in set(fixed.tolist())])
    if free.size == 0:
        raise ValueError("Conditioning on every dimension leaves nothing; leave out at least one.")
    if any(np.ndim(v) for v in given.values()):
        raise ValueError("Condition on one number per dimension; use jax.vmap for many.")
    value = jnp.stack([jnp.asarray(v, q.dtype) for v in given.values()])
    if not holds(jnp.all(jnp.isfinite(value))):
        raise ValueError("The values to condition on must be finite.")
    log_density, parts = q.components.condition(fixed, free, value)
    log_w = q.log_weights + log_density
    if not holds(jnp.max(log_w) > -jnp.inf):
        raise ValueError(
            f"The values to condition on are so far away that their density underflows in {q.dtype}."
        )
    return Mixture(jax.nn.log_softmax(log_w), parts)


def affine(q: Mixture, matrix: ArrayLike, shift: ArrayLike = 0.0) -> Mixture:
    """`Mixture.affine`."""
    A = jnp.asarray(matrix, q.dtype)
    if A.ndim <= 1:
        return _scale_and_shift(q, A, shift)
    if A.ndim != 2 or A.shape[1] != q.dim:
        raise ValueError(f"The matrix must have {q.dim} columns, got shape {A.shape}.")
    b = vector(shift, A.shape[0], q.dtype, "The shift")
    if not holds(jnp.all(jnp.isfinite(A))):
        raise ValueError("The matrix must be finite.")
    rows = A / jnp.linalg.norm(A, axis=1, keepdims=True)  # so that the rank does not depend on units
    if not holds(jnp.linalg.matrix_rank(jnp.nan_to_num(rows)) == A.shape[0]):
        raise ValueError("The matrix must have full row rank, otherwise the image has no density.")
    return Mixture(q.log_weights, q.components.affine(A, b))


def _scale_and_shift(q: Mixture, scale: Float[Array, "..."], shift: ArrayLike) -> Mixture:
    a = vector(scale, q.dim, q.dtype, "The scale")
    b = vector(shift, q.dim, q.dtype, "The shift")
    if not holds(jnp.all(a != 0)):
        raise ValueError("An affine map must not scale a dimension by zero.")
    return Mixture(q.log_weights, q.components.rescale(a, b))


def product(q: Mixture, mean: ArrayLike, covariance: ArrayLike) -> tuple[Mixture, Float[Array, ""]]:
    """`Mixture.product`."""
    m = vector(mean, q.dim, q.dtype, "The mean")
    C = jnp.asarray(covariance, q.dtype)
    if C.ndim <= 1:
        variance = vector(C, q.dim, q.dtype, "The variance")
        other = Mixture.diagonal([1.0], m[None], variance[None]).components
    else:
        other = Mixture.full([1.0], m[None], C[None]).components
    log_w, parts = _multiplied(q.log_weights, q.components, other)
    log_z = jax.nn.logsumexp(log_w)
    return Mixture(log_w - log_z, parts), log_z


@jax.jit
def _multiplied(
    log_weights: Float[Array, " K"], parts: AbstractGaussians, other: AbstractGaussians
) -> tuple[Float[Array, " K"], AbstractGaussians]:
    """Unnormalised log weights, and Gaussians."""
    log_normaliser, product = parts.multiply(other)
    return log_weights + log_normaliser, product
