"""How K Gaussians meet N samples: the sums that take most of a run's time, for one block of samples.

Two forms give the same numbers:

    whitened    y = L^-1 (x - m) for every component and sample. Accurate in any precision; its
                arrays have K N D entries.
    quadratic   log N(x; m, S) is linear in the products x_i x_j, so that everything is a few large
                matrix products without an array of K N D entries. The products cancel, so they are
                formed in double precision, which costs little beside the memory saved.
"""

import abc
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix._blocks import block_rows
from natmix._linalg import einsum, symmetrise

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

    @abc.abstractmethod
    def curvature(self, moment: Array) -> "Curvature":
        """The symmetric part of L^-1 (sum_n w (x - m) v^T) L."""


class WhitenedKernel(AbstractKernel):
    """By y = L^-1 (x - m), for any kind of covariance."""

    gaussians: "AbstractGaussians"

    def rows_per_block(self) -> int:
        return block_rows(2 * self.gaussians.capacity * self.gaussians.dim)

    def log_prob(self, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
        y = self.gaussians.whiten(x)
        offset = self.gaussians.half_log_det() + 0.5 * self.gaussians.dim * LOG_2PI
        return (-0.5 * jnp.sum(y * y, axis=-1) - offset[:, None]).T

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
        rows, cols = np.triu_indices(g.dim)
        share = np.where(rows == cols, -0.5, -1.0)
        half_log_det = g.half_log_det()
        with jax.enable_x64(True):
            P, Pm = self._natural()
            square = _double(x)[:, rows] * _double(x)[:, cols]
            offset = -0.5 * einsum("ki,ki->k", Pm, _double(g.mean)) - _double(half_log_det)
            out = einsum("nf,kf->nk", square, P[:, rows, cols] * share) + einsum("ni,ki->nk", _double(x), Pm)
            return _like(x, out + offset - 0.5 * g.dim * LOG_2PI)

    def score(self, r: Float[Array, "B K"], x: Float[Array, "B D"]) -> Float[Array, "B D"]:
        K, D = self.gaussians.mean.shape
        with jax.enable_x64(True):
            P, Pm = self._natural()
            mean_precision = einsum("nk,kf->nf", _double(r), P.reshape(K, D * D)).reshape(-1, D, D)
            pull = einsum("nij,nj->ni", mean_precision, _double(x))
            return _like(x, einsum("nk,ki->ni", _double(r), Pm) - pull)

    def moment(self, w: Float[Array, "B K"], x: Float[Array, "B D"], v: Float[Array, "B D"]) -> Array:
        K, D = self.gaussians.mean.shape
        with jax.enable_x64(True):
            products = (_double(x)[:, :, None] * _double(v)[:, None, :]).reshape(-1, D * D)
            second = einsum("nk,nf->kf", _double(w), products).reshape(K, D, D)
            first = einsum("nk,ni->ki", _double(w), _double(v))
            return _like(x, second - _double(self.gaussians.mean)[:, :, None] * first[:, None, :])

    def curvature(self, moment: Float[Array, "K D D"]) -> Float[Array, "K D D"]:
        g = self.gaussians
        return symmetrise(einsum("kij,kjl,klm->kim", g.inverse_tril, moment, g.scale_tril))

    def _natural(self) -> tuple[Float[Array, "K D D"], Float[Array, "K D"]]:
        """S^-1 and S^-1 m."""
        W = _double(self.gaussians.inverse_tril)
        P = einsum("kai,kaj->kij", W, W)
        return P, einsum("kij,kj->ki", P, _double(self.gaussians.mean))


def _double(a: Array) -> Array:
    return jax.lax.convert_element_type(a, np.dtype("float64"))


def _like(x: Array, a: Array) -> Array:
    return jax.lax.convert_element_type(a, x.dtype)
