"""Gaussians with full covariances, kept as L and L^-1."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.gaussians.base import AbstractGaussians
from natmix.kernels.blocks import block_rows, map_blocks
from natmix.kernels.gaussian_batch import TriangularFactors
from natmix.kernels.linalg import einsum, symmetrise, triangular_inverse, upper_cholesky

_HALVES = 96
"""From this dimension on it pays to skip the upper right block of zeros of a triangular factor."""


class FullGaussians(AbstractGaussians):
    """K Gaussians with dense covariances S = L L^T.

    Both factors are kept: densities need L^-1 (a product with it is far faster than a triangular
    solve against all samples), draws and pulled gradients need L.
    """

    name: ClassVar[str] = "full"

    mean: Float[Array, "K D"]
    scale_tril: Float[Array, "K D D"]
    inverse_tril: Float[Array, "K D D"]

    @classmethod
    def from_scale_tril(cls, mean: Float[Array, "K D"], scale_tril: Float[Array, "K D D"]) -> Self:
        """From lower Cholesky factors L."""
        return cls(mean, scale_tril, triangular_inverse(scale_tril))

    @classmethod
    def from_covariance(cls, mean: Float[Array, "K D"], covariance: Float[Array, "K D D"]) -> Self:
        return cls.from_scale_tril(mean, jnp.linalg.cholesky(covariance))

    @classmethod
    def isotropic(cls, mean: Float[Array, "K D"], scale: Float[Array, " K"]) -> Self:
        eye = jnp.eye(mean.shape[-1], dtype=mean.dtype)
        return cls(mean, scale[:, None, None] * eye, eye / scale[:, None, None])

    @classmethod
    def from_std(cls, mean: Float[Array, "K D"], std: Float[Array, "K D"]) -> Self:
        # Never squared: the square of a standard deviation may overflow.
        return cls(mean, jax.vmap(jnp.diag)(std), jax.vmap(jnp.diag)(1 / std))

    def parameters(self) -> dict[str, Float[Array, "K ..."]]:
        return {"mean": self.mean, "scale_tril": self.scale_tril}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Float[Array, "K ..."]]) -> Self:
        return cls.from_scale_tril(parameters["mean"], parameters["scale_tril"])

    @classmethod
    def flaw(cls, parameters: Mapping[str, np.ndarray]) -> str:
        scale_tril = parameters["scale_tril"]
        if not np.all(np.diagonal(scale_tril, axis1=-2, axis2=-1) > 0):
            return "has a component without a positive scale"
        # One component at a time: a copy of all may be large.
        lower = all(not np.any(np.triu(one, 1)) for one in scale_tril)
        return "" if lower else "has a scale_tril with entries above the diagonal"

    def astype(self, dtype: Any) -> Self:
        # L^-1 to the accuracy of the new type.
        return type(self).from_scale_tril(self.mean.astype(dtype), self.scale_tril.astype(dtype))

    def covariance(self) -> Float[Array, "K D D"]:
        return einsum("kij,klj->kil", self.scale_tril, self.scale_tril)

    def cholesky(self) -> Float[Array, "K D D"]:
        return self.scale_tril

    def inverse_cholesky(self) -> Float[Array, "K D D"]:
        return self.inverse_tril

    def half_log_det(self) -> Float[Array, " K"]:
        return jnp.sum(jnp.log(jnp.diagonal(self.scale_tril, axis1=-2, axis2=-1)), axis=-1)

    def narrowness(self) -> Float[Array, " K"]:
        size = jnp.abs(self.mean) + jnp.linalg.norm(self.scale_tril, axis=-1)
        return jnp.linalg.norm(self.inverse_tril * size[:, None, :], axis=(-2, -1))

    @property
    def factors(self) -> TriangularFactors:
        return TriangularFactors(self.mean, self.scale_tril, self.inverse_tril)

    def with_factors(self, factors: TriangularFactors) -> Self:
        return type(self)(*factors)

    def whiten(self, x: Float[Array, "N D"]) -> Float[Array, "K N D"]:
        return einsum("knj,kij->kni", x[None] - self.mean[:, None], self.inverse_tril)

    def squared_distances(self, x: Float[Array, "N D"]) -> Float[Array, "K N"]:
        if self.dim < _HALVES:
            return super().squared_distances(x)
        # L^-1 is triangular: the first half of y needs only the first half of x.
        half = self.dim // 2
        d = x[None] - self.mean[:, None]
        upper = einsum("knj,kij->kni", d[..., :half], self.inverse_tril[:, :half, :half])
        lower = einsum("knj,kij->kni", d, self.inverse_tril[:, half:])
        return jnp.sum(upper * upper, axis=-1) + jnp.sum(lower * lower, axis=-1)

    def colour(self, y: Float[Array, "K N D"]) -> Float[Array, "K N D"]:
        return self.mean[:, None] + einsum("knj,kij->kni", y, self.scale_tril)

    def colour_rows(self, y: Float[Array, "N D"], rows: Int[Array, " N"]) -> Float[Array, "N D"]:
        return map_blocks(self._colour_block, (y, rows), block_rows(self.dim**2))

    def _colour_block(self, y: Float[Array, "B D"], rows: Int[Array, " B"]) -> Float[Array, "B D"]:
        return self.mean[rows] + einsum("nj,nij->ni", y, self.scale_tril[rows])

    def pull(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return einsum("kij,ki->kj", self.scale_tril, v)

    def push(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return einsum("kij,kj->ki", self.scale_tril, v)

    def unpull(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return einsum("kij,ki->kj", self.inverse_tril, v)

    def pull_curvature(self, G: Float[Array, "K D D"]) -> Float[Array, "K D D"]:
        return symmetrise(einsum("kij,kil,klm->kjm", self.scale_tril, G, self.scale_tril))

    def unpull_curvature(self, A: Float[Array, "K D D"]) -> Float[Array, "K D D"]:
        return symmetrise(einsum("kij,kil,klm->kjm", self.inverse_tril, A, self.inverse_tril))

    def scaled(self, A: Float[Array, "K D D"], by: Float[Array, " K"]) -> Float[Array, "K D D"]:
        return A * by[:, None, None]

    def plus_identity(self, A: Float[Array, "K D D"]) -> Float[Array, "K D D"]:
        return A + jnp.eye(self.dim, dtype=A.dtype)

    def square(self, A: Float[Array, "K D D"]) -> Float[Array, "K D D"]:
        return einsum("kij,kjl->kil", A, A)

    def spectrum(self, A: Float[Array, "K D D"]) -> tuple[Float[Array, "K D"], Float[Array, "K D D"]]:
        return jnp.linalg.eigh(A, symmetrize_input=False)

    def into_basis(self, basis: Float[Array, "K D D"], v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return einsum("kij,ki->kj", basis, v)

    def from_basis(self, basis: Float[Array, "K D D"], v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return einsum("kij,kj->ki", basis, v)

    def from_spectrum(
        self, values: Float[Array, "K D"], basis: Float[Array, "K D D"]
    ) -> Float[Array, "K D D"]:
        return symmetrise(einsum("kij,kj,klj->kil", basis, values, basis))

    def factor(self, P: Float[Array, "K D D"]) -> Float[Array, "K D D"]:
        return upper_cholesky(P)

    def solve(self, U: Float[Array, "K D D"], v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        half = jax.scipy.linalg.solve_triangular(U, v[..., None], lower=False)
        return jax.scipy.linalg.solve_triangular(U, half, lower=False, trans=1)[..., 0]

    def moved(self, U: Float[Array, "K D D"], shift: Float[Array, "K D"]) -> Self:
        # S' = L (U U^T)^-1 L^T, so L'^-1 = U^T L^-1 is lower triangular. L' is its inverse rather
        # than the product L U^-T: the two factors then never drift apart over many updates.
        inverse = jnp.tril(einsum("kji,kjl->kil", U, self.inverse_tril))
        return type(self)(self.mean + self.push(shift), triangular_inverse(inverse), inverse)

    def features(self, y: Float[Array, "N D"]) -> Float[Array, "N F"]:
        rows, cols = np.tril_indices(self.dim, -1)
        return jnp.concatenate([y * y - 1, y[:, rows] * y[:, cols], y], axis=1)

    def unpack(self, coefficients: Float[Array, "K F"]) -> tuple[Float[Array, "K D D"], Float[Array, "K D"]]:
        D = self.dim
        rows, cols = np.tril_indices(D, -1)
        diagonal, cross, linear = jnp.split(coefficients, [D, D + len(rows)], axis=1)
        hessian = jnp.zeros((coefficients.shape[0], D, D), coefficients.dtype)
        hessian = hessian.at[:, rows, cols].set(cross).at[:, cols, rows].set(cross)
        d = np.arange(D)
        return hessian.at[:, d, d].set(2 * diagonal), linear

    def cross_moment(
        self, y: Float[Array, "K N D"], w: Float[Array, "N K"], v: Float[Array, "N D"]
    ) -> Float[Array, "K D D"]:
        return einsum("kni,nj->kij", y * w.T[:, :, None], v)

    def second_moment(self, y: Float[Array, "K N D"], w: Float[Array, "N K"]) -> Float[Array, "K D D"]:
        return einsum("kni,knj->kij", y * w.T[:, :, None], y)

    def finish_cross_moment(self, M: Float[Array, "K D D"]) -> Float[Array, "K D D"]:
        return symmetrise(einsum("kij,kjl->kil", M, self.scale_tril))

    def precision_weighted_sum(self, y: Float[Array, "K N D"], r: Float[Array, "N K"]) -> Float[Array, "N D"]:
        return einsum("kni,kij->nj", y * r.T[:, :, None], self.inverse_tril)
