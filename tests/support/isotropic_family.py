"""A covariance family in one file: every covariance is a multiple of the identity.

What an extender writes: the abstract methods of `AbstractGaussians`, and one line that registers it.
A curvature is one number per component, that of the matrix c I.
"""

from typing import ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natmix.gaussians import AbstractGaussians, register


def _mean_diagonal(matrix: Float[Array, "K D D"]) -> Float[Array, " K"]:
    return jnp.mean(jnp.diagonal(matrix, axis1=-2, axis2=-1), axis=-1)


@register
class IsotropicGaussians(AbstractGaussians):
    """K Gaussians with covariances scale^2 I."""

    name: ClassVar[str] = "isotropic"
    axis_aligned: ClassVar[bool] = True

    mean: Float[Array, "K D"]
    scale: Float[Array, " K"]

    @classmethod
    def from_covariance(cls, mean: Float[Array, "K D"], covariance: Float[Array, "K D D"]) -> Self:
        return cls(mean, jnp.sqrt(_mean_diagonal(covariance)))

    @classmethod
    def isotropic(cls, mean: Float[Array, "K D"], scale: Float[Array, " K"]) -> Self:
        return cls(mean, scale)

    def covariance(self) -> Float[Array, "K D D"]:
        return self.scale[:, None, None] ** 2 * jnp.eye(self.dim, dtype=self.dtype)

    def cholesky(self) -> Float[Array, "K D D"]:
        return self.scale[:, None, None] * jnp.eye(self.dim, dtype=self.dtype)

    def inverse_cholesky(self) -> Float[Array, "K D D"]:
        return jnp.eye(self.dim, dtype=self.dtype) / self.scale[:, None, None]

    def half_log_det(self) -> Float[Array, " K"]:
        return self.dim * jnp.log(self.scale)

    def narrowness(self) -> Float[Array, " K"]:
        return jnp.linalg.norm(jnp.abs(self.mean) / self.scale[:, None] + 1, axis=-1)

    def whiten(self, x: Float[Array, "N D"]) -> Float[Array, "K N D"]:
        return (x[None] - self.mean[:, None]) / self.scale[:, None, None]

    def colour(self, y: Float[Array, "K N D"]) -> Float[Array, "K N D"]:
        return self.mean[:, None] + self.scale[:, None, None] * y

    def colour_rows(self, y: Float[Array, "N D"], rows: Int[Array, " N"]) -> Float[Array, "N D"]:
        return self.mean[rows] + self.scale[rows, None] * y

    def pull(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return self.scale[:, None] * v

    def push(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return self.scale[:, None] * v

    def unpull(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return v / self.scale[:, None]

    def pull_curvature(self, G: Float[Array, "K D D"]) -> Float[Array, " K"]:
        return _mean_diagonal(G) * self.scale**2

    def unpull_curvature(self, A: Float[Array, " K"]) -> Float[Array, "K D D"]:
        return (A / self.scale**2)[:, None, None] * jnp.eye(self.dim, dtype=A.dtype)

    def scaled(self, A: Float[Array, " K"], by: Float[Array, " K"]) -> Float[Array, " K"]:
        return A * by

    def plus_identity(self, A: Float[Array, " K"]) -> Float[Array, " K"]:
        return A + 1

    def square(self, A: Float[Array, " K"]) -> Float[Array, " K"]:
        return A * A

    def spectrum(self, A: Float[Array, " K"]) -> tuple[Float[Array, "K D"], None]:
        return jnp.broadcast_to(A[:, None], self.mean.shape), None

    def into_basis(self, basis: None, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return v

    def from_basis(self, basis: None, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return v

    def from_spectrum(self, values: Float[Array, "K D"], basis: None) -> Float[Array, " K"]:
        return jnp.mean(values, axis=1)

    def factor(self, P: Float[Array, " K"]) -> Float[Array, " K"]:
        return jnp.sqrt(jnp.where(P > 0, P, jnp.nan))

    def solve(self, U: Float[Array, " K"], v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return v / U[:, None] ** 2

    def moved(self, U: Float[Array, " K"], shift: Float[Array, "K D"]) -> Self:
        return type(self)(self.mean + self.push(shift), self.scale / U)

    def features(self, y: Float[Array, "N D"]) -> Float[Array, "N F"]:
        square = (jnp.sum(y * y, axis=1, keepdims=True) - self.dim) / jnp.sqrt(self.dim)
        return jnp.concatenate([square, y], axis=1)

    def unpack(self, coefficients: Float[Array, "K F"]) -> tuple[Float[Array, " K"], Float[Array, "K D"]]:
        return 2 * coefficients[:, 0] / jnp.sqrt(self.dim), coefficients[:, 1:]

    def cross_moment(
        self, y: Float[Array, "K N D"], w: Float[Array, "N K"], v: Float[Array, "N D"]
    ) -> Float[Array, " K"]:
        return jnp.einsum("kni,nk,ni->k", y, w, v) / self.dim

    def second_moment(self, y: Float[Array, "K N D"], w: Float[Array, "N K"]) -> Float[Array, " K"]:
        return jnp.einsum("kni,nk->k", y * y, w) / self.dim

    def finish_cross_moment(self, M: Float[Array, " K"]) -> Float[Array, " K"]:
        return M * self.scale

    def precision_weighted_sum(self, y: Float[Array, "K N D"], r: Float[Array, "N K"]) -> Float[Array, "N D"]:
        return jnp.einsum("kni,nk,k->ni", y, r, 1 / self.scale)
