"""Full covariances by native kernels. Derivatives are those of the forms in XLA."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count
from natmix.gaussians.base import AbstractGaussians
from natmix.kernels import native

if TYPE_CHECKING:
    from natmix.gaussians.full import FullGaussians


@jax.custom_jvp
def log_prob(
    gaussians: "FullGaussians",
    x: Float[Array, "N D"],
    count: Count | None,
    present: Bool[Array, " K"] | None,
) -> Float[Array, "N K"]:
    """Log N(x; m, S) of every sample under every component; -inf under absent ones."""
    return native.log_prob(
        x, gaussians.mean, gaussians.inverse_tril, gaussians.log_normaliser(), present, count
    )


@log_prob.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    gaussians, x, count, present = primals

    def plain(gaussians: "FullGaussians", x: Array) -> Array:
        return AbstractGaussians.log_prob(gaussians, x, count, present)

    return log_prob(*primals), jax.jvp(plain, (gaussians, x), tangents[:2])[1]


def relevant_log_prob(
    gaussians: "FullGaussians",
    x: Float[Array, "N D"],
    count: Count | None,
    log_weights: Float[Array, " K"],
    log_share: Float[Array, " K"],
    near: Int[Array, " N"],
    log_background: Float[Array, " N"] | None,
) -> Float[Array, "N K"]:
    """The same, -inf also where it does not matter. It has no derivative."""
    z = jnp.full(x.shape[0], jnp.inf, x.dtype) if log_background is None else log_background
    m, W, c = gaussians.mean, gaussians.inverse_tril, gaussians.log_normaliser()
    return native.relevant_log_prob(x, m, W, c, log_weights, log_share, near, z, count)


@jax.custom_jvp
def mixture_log_prob(
    gaussians: "FullGaussians", log_weights: Float[Array, " K"], x: Float[Array, "N D"], count: Count | None
) -> Float[Array, " N"]:
    """Log sum_k w_k N(x; m, S)."""
    W = gaussians.inverse_tril
    return native.mixture_log_prob(x, gaussians.mean, W, gaussians.log_normaliser(), log_weights, count)


@mixture_log_prob.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    gaussians, log_weights, x, count = primals

    def plain(gaussians: "FullGaussians", log_weights: Array, x: Array) -> Array:
        return AbstractGaussians.mixture_log_prob(gaussians, log_weights, x, count)

    return mixture_log_prob(*primals), jax.jvp(plain, (gaussians, log_weights, x), tangents[:3])[1]
