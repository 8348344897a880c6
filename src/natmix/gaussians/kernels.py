"""How K Gaussians meet N samples: the sums that take most of a run's time, for one block of samples.

Three forms give the same numbers:

    whitened    y = L^-1 (x - m) for every component and sample, here. Accurate in any precision; its
                arrays have K N D entries.
    stacked     y = L^-1 x - L^-1 m, one large product (`_stacked_kernel.py`). The difference cancels,
                so it is formed in double precision.
    quadratic   log N(x; m, S) is linear in the products x_i x_j (`_quadratic_kernel.py`), so that
                everything is a few large matrix products without an array of K N D entries. The
                products cancel, so they are formed in double precision, which costs little beside the
                memory saved.
"""

import abc
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.kernels.blocks import block_rows
from natmix.kernels.linalg import einsum

if TYPE_CHECKING:
    from natmix.gaussians.base import AbstractGaussians, Curvature

LOG_2PI = float(np.log(2 * np.pi))


class AbstractKernel(eqx.Module):
    """The sums over samples that densities, scores and Stein's lemma need."""

    @abc.abstractmethod
    def rows_per_block(self) -> int:
        """How many samples to handle at once."""

    @abc.abstractmethod
    def log_prob(self, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
        """Log N(x; m, S)."""

    @abc.abstractmethod
    def score(self, r: Float[Array, "B K"], x: Float[Array, "B D"]) -> Float[Array, "B D"]:
        """-sum_k r S^-1 (x - m)."""

    @abc.abstractmethod
    def moment(self, w: Float[Array, "B K"], x: Float[Array, "B D"], v: Float[Array, "B D"]) -> Array:
        """sum_n w (x - m) v^T, in coordinates that `curvature` understands."""

    def moment_and_gradient(
        self, w: Float[Array, "B K"], x: Float[Array, "B D"], v: Float[Array, "B D"]
    ) -> tuple[Array, Float[Array, "K D"]]:
        """`moment`, and sum_n w v."""
        return self.moment(w, x, v), einsum("bk,bd->kd", w, v)

    @abc.abstractmethod
    def curvature(self, moment: Array) -> "Curvature":
        """The symmetric part of L^-1 (sum_n w (x - m) v^T) L."""


class WhitenedKernel(AbstractKernel):
    """By y = L^-1 (x - m), for any kind of covariance."""

    gaussians: "AbstractGaussians"

    def rows_per_block(self) -> int:
        return block_rows(2 * self.gaussians.capacity * self.gaussians.dim)

    def log_prob(self, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
        offset = self.gaussians.half_log_det() + 0.5 * self.gaussians.dim * LOG_2PI
        return (-0.5 * self.gaussians.squared_distances(x) - offset[:, None]).T

    def score(self, r: Float[Array, "B K"], x: Float[Array, "B D"]) -> Float[Array, "B D"]:
        return -self.gaussians._pulled_sum(self.gaussians.whiten(x), r)

    def moment(self, w: Float[Array, "B K"], x: Float[Array, "B D"], v: Float[Array, "B D"]) -> Array:
        return self.gaussians._cross_moment(self.gaussians.whiten(x), w, v)

    def curvature(self, moment: Array) -> "Curvature":
        return self.gaussians._finish_cross(moment)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def differentiable_log_prob(
    form: Callable[..., Array],
    x: Float[Array, "B D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    half_log_det: Float[Array, " K"],
) -> Float[Array, "B K"]:
    """Log densities with S^-1 = W^T W by ``form``, which need not be differentiable."""
    return form(x, mean, W, half_log_det)


@differentiable_log_prob.defjvp
def _(
    form: Callable[..., Array], primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[Array, Array]:
    def whitened(x: Array, mean: Array, W: Array, half_log_det: Array) -> Array:
        y = einsum("knj,kij->kni", x[None] - mean[:, None], W)
        return (-0.5 * jnp.sum(y * y, axis=-1) - half_log_det[:, None]).T

    return differentiable_log_prob(form, *primals), jax.jvp(whitened, primals, tangents)[1]
