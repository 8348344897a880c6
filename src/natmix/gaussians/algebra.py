"""Closed-form operations on Gaussians by their Cholesky factors.

Covariances are never formed: that would square the condition number, and float32 does not have the
digits for it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natmix.gaussians import AbstractGaussians, DiagonalGaussians, FullGaussians
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


def scale_tril(parts: AbstractGaussians) -> Float[Array, "K D D"]:
    """Dense lower Cholesky factors L."""
    if isinstance(parts, FullGaussians):
        return parts.scale_tril
    return component_std(parts)[:, :, None] * jnp.eye(parts.dim, dtype=parts.dtype)


def inverse_tril(parts: AbstractGaussians) -> Float[Array, "K D D"]:
    """Dense L^-1."""
    if isinstance(parts, FullGaussians):
        return parts.inverse_tril
    return jnp.eye(parts.dim, dtype=parts.dtype) / component_std(parts)[:, :, None]


def component_std(parts: AbstractGaussians) -> Float[Array, "K D"]:
    """Marginal standard deviations of every component."""
    if isinstance(parts, DiagonalGaussians):
        return parts.scale
    return jnp.linalg.norm(scale_tril(parts), axis=-1)


@jax.jit
def condition_on_first(
    log_weights: Float[Array, " K"],
    mean: Float[Array, "K M"],
    factor: Float[Array, "K M M"],
    value: Float[Array, " B"],
) -> tuple[Float[Array, " K"], FullGaussians]:
    """Unnormalised log weights and Gaussians of the rest, given the first B of M dimensions.

    With L = [[L_bb, 0], [L_ab, L_aa]]: x_a | x_b ~ N(m_a + L_ab L_bb^-1 (x_b - m_b), L_aa L_aa^T).
    """
    B = value.shape[0]
    first = FullGaussians.from_scale_tril(mean[:, :B], factor[:, :B, :B])
    log_w = log_weights + first.log_prob(value[None])[0]
    shift = einsum("kab,kb->ka", factor[:, B:, :B], first.whiten(value[None])[:, 0])
    return log_w, FullGaussians.from_scale_tril(mean[:, B:] + shift, factor[:, B:, B:])


@jax.jit
def multiply(
    log_weights: Float[Array, " K"], parts: AbstractGaussians, other: AbstractGaussians
) -> tuple[Float[Array, " K"], AbstractGaussians]:
    """Unnormalised log weights and Gaussians of the product with the one Gaussian ``other``."""
    if isinstance(parts, DiagonalGaussians) and isinstance(other, DiagonalGaussians):
        spread = jnp.hypot(parts.scale, other.scale)
        log_w = log_weights + DiagonalGaussians(parts.mean, spread).log_prob(other.mean)[0]
        mean = other.mean + (other.scale / spread) ** 2 * (parts.mean - other.mean)
        return log_w, DiagonalGaussians(mean, parts.scale * (other.scale / spread))
    # Precisions add, so the inverse factors are stacked; covariances add in the weights and the mean.
    L, C = jnp.broadcast_arrays(scale_tril(parts), scale_tril(other))
    total = FullGaussians.from_scale_tril(parts.mean, triangularise(jnp.concatenate([L, C], axis=-1)))
    log_w = log_weights + total.log_prob(other.mean)[0]
    residual = total.unpull(total.whiten(other.mean)[:, 0])  # (S + C)^-1 (m_other - m)
    mean = other.mean - einsum("kij,klj,kl->ki", C, C, residual)
    halves = jnp.broadcast_arrays(inverse_tril(parts), inverse_tril(other))
    inverse = triangularise_transposed(jnp.concatenate(halves, axis=-2))
    return log_w, FullGaussians(mean, triangular_inverse(inverse), inverse)


@jax.jit
def gaussian_kl(p: AbstractGaussians, q: AbstractGaussians) -> Float[Array, ""]:
    """KL(p || q) of the first Gaussian of either."""
    shift = q.whiten(p.mean)[0, 0]
    log_ratio = q.half_log_det()[0] - p.half_log_det()[0]
    if isinstance(p, DiagonalGaussians) and isinstance(q, DiagonalGaussians):
        ratio = p.scale / q.scale
    else:
        ratio = jax.scipy.linalg.solve_triangular(scale_tril(q)[0], scale_tril(p)[0], lower=True)
    return 0.5 * (jnp.sum(ratio**2) + jnp.sum(shift**2) - p.dim) + log_ratio
