"""Matrix products and triangular factors in full precision.

By default JAX multiplies float32 matrices in TF32 on recent GPUs. That is too inaccurate for densities and
factorisations, so every matrix product of the library uses `einsum` from here.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


@jax.jit
def triangular_inverse(L: Float[Array, "*K D D"]) -> Float[Array, "*K D D"]:
    """The inverse of lower triangular matrices."""
    eye = jnp.broadcast_to(jnp.eye(L.shape[-1], dtype=L.dtype), L.shape)
    return jnp.tril(jax.scipy.linalg.solve_triangular(L, eye, lower=True))


def upper_cholesky(P: Float[Array, "*K D D"]) -> Float[Array, "*K D D"]:
    """The upper triangular U with P = U U^T (NaN where P is not positive definite).

    With S = P^-1 the lower Cholesky factor of S is U^-T, so the inverse of P is never formed.
    """
    flipped = jnp.linalg.cholesky(P[..., ::-1, ::-1])
    return flipped[..., ::-1, ::-1]


def symmetrise(A: Float[Array, "*K D D"]) -> Float[Array, "*K D D"]:
    """The symmetric part of A."""
    return 0.5 * (A + jnp.swapaxes(A, -1, -2))
