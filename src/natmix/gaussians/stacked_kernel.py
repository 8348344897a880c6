"""Whitened coordinates of all components as one large product, in double precision."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Float

from natmix.gaussians.kernels import LOG_2PI, AbstractKernel, differentiable_log_prob
from natmix.kernels.blocks import block_rows
from natmix.kernels.float64 import in_double
from natmix.kernels.linalg import einsum

if TYPE_CHECKING:
    from natmix.gaussians.full import FullGaussians


class StackedKernel(AbstractKernel):
    """By y = L^-1 x - L^-1 m, for full covariances of many dimensions on accelerators.

    The product has K D columns, where that of x - m is K products with D columns; and it leaves y in the
    order in which the sums over components and over samples want it.
    """

    gaussians: "FullGaussians"

    def rows_per_block(self) -> int:
        return block_rows(3 * self.gaussians.capacity * self.gaussians.dim)

    def log_prob(self, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
        g = self.gaussians
        return differentiable_log_prob(_log_prob, x, g.mean, g.inverse_tril, g.half_log_det())

    def score(self, r: Float[Array, "B K"], x: Float[Array, "B D"]) -> Float[Array, "B D"]:
        return -einsum("bki,kij->bj", self._whitened(x) * r[:, :, None], self.gaussians.inverse_tril)

    def moment(
        self, w: Float[Array, "B K"], x: Float[Array, "B D"], v: Float[Array, "B D"]
    ) -> Float[Array, "K D D"]:
        return einsum("bki,bj->kij", self._whitened(x) * w[:, :, None], v)

    def curvature(self, moment: Float[Array, "K D D"]) -> Float[Array, "K D D"]:
        return self.gaussians._finish_cross(moment)

    def _whitened(self, x: Float[Array, "B D"]) -> Float[Array, "B K D"]:
        return _whitened(x, self.gaussians.mean, self.gaussians.inverse_tril)


def _log_prob(x: Array, mean: Array, W: Array, half_log_det: Array) -> Array:
    y = _whitened(x, mean, W)
    return -0.5 * jnp.sum(y * y, axis=-1) - half_log_det - 0.5 * x.shape[1] * LOG_2PI


@in_double
def _whitened(x: Array, mean: Array, W: Array) -> Array:
    return einsum("bj,kij->bki", x, W) - einsum("kij,kj->ki", W, mean)
