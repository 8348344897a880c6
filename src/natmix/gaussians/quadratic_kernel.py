"""Log densities as products of coordinates, in double precision."""

from types import ModuleType
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natmix.gaussians import accelerator_products, cpu_products
from natmix.gaussians.kernels import LOG_2PI, AbstractKernel, differentiable_log_prob
from natmix.kernels.blocks import block_rows
from natmix.kernels.float64 import in_double
from natmix.kernels.linalg import einsum

if TYPE_CHECKING:
    from natmix.gaussians.full import FullGaussians


class QuadraticKernel(AbstractKernel):
    """By products x_i x_j in double precision, for full covariances of few dimensions."""

    gaussians: "FullGaussians"

    def rows_per_block(self) -> int:
        D = self.gaussians.dim
        return block_rows(2 * self.gaussians.capacity + 2 * D * (D + 1))

    def log_prob(self, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
        g = self.gaussians
        return differentiable_log_prob(_log_prob, x, g.mean, g.inverse_tril, g.half_log_det())

    def score(self, r: Float[Array, "B K"], x: Float[Array, "B D"]) -> Float[Array, "B D"]:
        g = self.gaussians
        return _score(x, r, g.mean, g.inverse_tril, *_products().indices(g.dim))

    def moment(self, w: Float[Array, "B K"], x: Float[Array, "B D"], v: Float[Array, "B D"]) -> Array:
        return self.moment_and_gradient(w, x, v)[0]

    def moment_and_gradient(
        self, w: Float[Array, "B K"], x: Float[Array, "B D"], v: Float[Array, "B D"]
    ) -> tuple[Float[Array, "K D D"], Float[Array, "K D"]]:
        K, D = self.gaussians.mean.shape
        both = _moment_and_gradient(x, w, v, self.gaussians.mean)
        return both[:, : D * D].reshape(K, D, D), both[:, D * D :]

    def curvature(self, moment: Float[Array, "K D D"]) -> Float[Array, "K D D"]:
        return self.gaussians.cross_curvature(moment)


def _log_prob(x: Array, mean: Array, W: Array, half_log_det: Array) -> Array:
    return _log_prob_in_double(x, mean, W, half_log_det, *_products().indices(x.shape[1]))


@in_double
def _log_prob_in_double(x: Array, mean: Array, W: Array, half_log_det: Array, *indices: Array) -> Array:
    P, Pm = _natural(mean, W)
    offset = -0.5 * einsum("ki,ki->k", Pm, mean) - half_log_det - 0.5 * x.shape[1] * LOG_2PI
    return _products().log_prob(x, P, Pm, offset, *indices)


@in_double
def _score(x: Array, r: Array, mean: Array, W: Array, *indices: Array) -> Array:
    return _products().score(x, r, *_natural(mean, W), *indices)


@in_double
def _moment_and_gradient(x: Array, w: Array, v: Array, mean: Array) -> Array:
    """sum_n w (x - m) v^T and, beside it, sum_n w v."""
    K, D = mean.shape
    sums = _products().cross_sums(x, w, v)
    gradient = sums[:, D * D :]
    shifted = mean[:, :, None] * gradient[:, None, :]
    return jnp.concatenate([sums[:, : D * D] - shifted.reshape(K, D * D), gradient], axis=1)


def _products() -> ModuleType:
    return cpu_products if jax.default_backend() == "cpu" else accelerator_products


def _natural(mean: Array, W: Array) -> tuple[Float[Array, "K D D"], Float[Array, "K D"]]:
    """S^-1 and S^-1 m."""
    P = einsum("kai,kaj->kij", W, W)
    return P, einsum("kij,kj->ki", P, mean)
