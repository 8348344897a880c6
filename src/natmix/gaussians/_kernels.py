"""How K Gaussians meet N samples: the sums that take most of a run's time, for one block of samples.

Two forms give the same numbers:

    whitened    y = L^-1 (x - m) for every component and sample. Accurate in any precision; its
                arrays have K N D entries.
    quadratic   log N(x; m, S) is linear in the products x_i x_j, so that everything is a few large
                matrix products without an array of K N D entries. The products cancel, so they are
                formed in double precision, which costs little beside the memory saved.
"""

import abc
from types import ModuleType
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix._blocks import block_rows
from natmix._double import in_double
from natmix._linalg import einsum, symmetrise
from natmix.gaussians import _accelerator_products, _cpu_products

if TYPE_CHECKING:
    from natmix.gaussians._base import AbstractGaussians, Curvature
    from natmix.gaussians.full import FullGaussians

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


class QuadraticKernel(AbstractKernel):
    """By products x_i x_j in double precision, for full covariances of few dimensions."""

    gaussians: "FullGaussians"

    def rows_per_block(self) -> int:
        D = self.gaussians.dim
        return block_rows(2 * self.gaussians.capacity + 2 * D * (D + 1))

    def log_prob(self, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
        g = self.gaussians
        return _log_prob(x, g.mean, g.inverse_tril, g.half_log_det())

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
        g = self.gaussians
        return symmetrise(einsum("kij,kjl,klm->kim", g.inverse_tril, moment, g.scale_tril))


@jax.custom_jvp
def _log_prob(
    x: Float[Array, "B D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    half_log_det: Float[Array, " K"],
) -> Float[Array, "B K"]:
    """Log densities with S^-1 = W^T W."""
    return _log_prob_in_double(x, mean, W, half_log_det, *_products().indices(x.shape[1]))


@_log_prob.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    def whitened(x: Array, mean: Array, W: Array, half_log_det: Array) -> Array:
        y = einsum("knj,kij->kni", x[None] - mean[:, None], W)
        return (-0.5 * jnp.sum(y * y, axis=-1) - half_log_det[:, None]).T

    return _log_prob(*primals), jax.jvp(whitened, primals, tangents)[1]


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
    return _cpu_products if jax.default_backend() == "cpu" else _accelerator_products


def _natural(mean: Array, W: Array) -> tuple[Float[Array, "K D D"], Float[Array, "K D"]]:
    """S^-1 and S^-1 m."""
    P = einsum("kai,kaj->kij", W, W)
    return P, einsum("kij,kj->ki", P, mean)
