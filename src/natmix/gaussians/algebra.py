"""Closed-form operations on Gaussians of any family, by their dense Cholesky factors.

Covariances are never formed: that would square the condition number, which is too much for float32.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.gaussians.base import AbstractGaussians
from natmix.gaussians.full import FullGaussians
from natmix.kernels.linalg import einsum, triangular_inverse


@jax.jit
def triangularise(half: Float[Array, "K M P"]) -> Float[Array, "K M M"]:
    """The lower Cholesky factor of ``half half^T`` (P >= M), by a QR decomposition."""
    R = jnp.linalg.qr(jnp.swapaxes(half, -1, -2), mode="r")
    diagonal = jnp.diagonal(R, axis1=-2, axis2=-1)
    return jnp.swapaxes(jnp.where(diagonal < 0, -1, 1)[..., None] * R, -1, -2)


def triangularise_transposed(half: Float[Array, "K P M"]) -> Float[Array, "K M M"]:
    """The lower triangular W with W^T W = half^T half (P >= M): an inverse factor of a precision."""
    flipped = triangularise(jnp.swapaxes(half[..., ::-1], -1, -2))
    return jnp.swapaxes(flipped, -1, -2)[..., ::-1, ::-1]


def marginal(parts: AbstractGaussians, dims: Int[np.ndarray, " M"]) -> FullGaussians:
    """`AbstractGaussians.marginal`."""
    return FullGaussians.from_scale_tril(parts.mean[:, dims], triangularise(parts.cholesky()[:, dims]))


def condition(
    parts: AbstractGaussians,
    fixed: Int[np.ndarray, " B"],
    free: Int[np.ndarray, " M"],
    value: Float[Array, " B"],
) -> tuple[Float[Array, " K"], FullGaussians]:
    """`AbstractGaussians.condition`."""
    order = np.concatenate([fixed, free])
    return _condition_on_first(parts.mean[:, order], triangularise(parts.cholesky()[:, order]), value)


@jax.jit
def _condition_on_first(
    mean: Float[Array, "K M"], factor: Float[Array, "K M M"], value: Float[Array, " B"]
) -> tuple[Float[Array, " K"], FullGaussians]:
    """Log densities of the first B of M dimensions, and the Gaussians of the rest.

    With L = [[L_bb, 0], [L_ab, L_aa]]: x_a | x_b ~ N(m_a + L_ab L_bb^-1 (x_b - m_b), L_aa L_aa^T).
    """
    B = value.shape[0]
    first = FullGaussians.from_scale_tril(mean[:, :B], factor[:, :B, :B])
    log_density = first.log_prob(value[None])[0]
    shift = einsum("kab,kb->ka", factor[:, B:, :B], first.whiten(value[None])[:, 0])
    return log_density, FullGaussians.from_scale_tril(mean[:, B:] + shift, factor[:, B:, B:])


def affine(parts: AbstractGaussians, matrix: Float[Array, "M D"], shift: Float[Array, " M"]) -> FullGaussians:
    """`AbstractGaussians.affine`."""
    mean = einsum("ij,kj->ki", matrix, parts.mean) + shift
    factor = triangularise(einsum("ij,kjl->kil", matrix, parts.cholesky()))
    return FullGaussians.from_scale_tril(mean, factor)


def rescale(
    parts: AbstractGaussians, factors: Float[Array, " D"], shift: Float[Array, " D"]
) -> FullGaussians:
    """`AbstractGaussians.rescale`."""
    mean = factors * parts.mean + shift
    return FullGaussians.from_scale_tril(mean, factors[:, None] * parts.cholesky() * jnp.sign(factors))


def multiply(parts: AbstractGaussians, other: AbstractGaussians) -> tuple[Float[Array, " K"], FullGaussians]:
    """`AbstractGaussians.multiply`."""
    # Precisions add, so the inverse factors are stacked; covariances add in the normaliser and the mean.
    L, C = jnp.broadcast_arrays(parts.cholesky(), other.cholesky())
    total = FullGaussians.from_scale_tril(parts.mean, triangularise(jnp.concatenate([L, C], axis=-1)))
    log_normaliser = total.log_prob(other.mean)[0]
    residual = total.unpull(total.whiten(other.mean)[:, 0])  # (S + C)^-1 (m_other - m)
    mean = other.mean - einsum("kij,klj,kl->ki", C, C, residual)
    halves = jnp.broadcast_arrays(parts.inverse_cholesky(), other.inverse_cholesky())
    inverse = triangularise_transposed(jnp.concatenate(halves, axis=-2))
    return log_normaliser, FullGaussians(mean, triangular_inverse(inverse), inverse)
