"""Gaussians with diagonal covariances, kept as standard deviations."""

from collections.abc import Mapping
from typing import ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.gaussians.base import AbstractGaussians
from natmix.kernels.linalg import einsum


class DiagonalGaussians(AbstractGaussians):
    """K Gaussians with covariances diag(scale^2); memory and time grow linearly with D."""

    name: ClassVar[str] = "diagonal"
    axis_aligned: ClassVar[bool] = True

    mean: Float[Array, "K D"]
    scale: Float[Array, "K D"]

    @classmethod
    def from_covariance(cls, mean: Float[Array, "K D"], covariance: Float[Array, "K D D"]) -> Self:
        return cls(mean, jnp.sqrt(jnp.diagonal(covariance, axis1=-2, axis2=-1)))

    @classmethod
    def isotropic(cls, mean: Float[Array, "K D"], scale: Float[Array, " K"]) -> Self:
        return cls(mean, jnp.broadcast_to(scale[:, None], mean.shape))

    @classmethod
    def from_std(cls, mean: Float[Array, "K D"], std: Float[Array, "K D"]) -> Self:
        return cls(mean, std)

    @classmethod
    def flaw(cls, parameters: Mapping[str, np.ndarray]) -> str:
        return "" if np.all(parameters["scale"] > 0) else "has a component without a positive scale"

    def covariance(self) -> Float[Array, "K D D"]:
        return self.scale[:, :, None] ** 2 * jnp.eye(self.dim, dtype=self.dtype)

    def cholesky(self) -> Float[Array, "K D D"]:
        return self.scale[:, :, None] * jnp.eye(self.dim, dtype=self.dtype)

    def inverse_cholesky(self) -> Float[Array, "K D D"]:
        return jnp.eye(self.dim, dtype=self.dtype) / self.scale[:, :, None]

    def half_log_det(self) -> Float[Array, " K"]:
        return jnp.sum(jnp.log(self.scale), axis=-1)

    def narrowness(self) -> Float[Array, " K"]:
        return jnp.linalg.norm(jnp.abs(self.mean) / self.scale + 1, axis=-1)

    def whiten(self, x: Float[Array, "N D"]) -> Float[Array, "K N D"]:
        return (x[None] - self.mean[:, None]) / self.scale[:, None]

    def colour(self, y: Float[Array, "K N D"]) -> Float[Array, "K N D"]:
        return self.mean[:, None] + self.scale[:, None] * y

    def colour_rows(self, y: Float[Array, "N D"], rows: Int[Array, " N"]) -> Float[Array, "N D"]:
        return self.mean[rows] + self.scale[rows] * y

    def pull(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return self.scale * v

    def push(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return self.scale * v

    def unpull(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return v / self.scale

    def push_rows(self, y: Float[Array, "N D"], rows: Int[Array, " N"]) -> Float[Array, "N D"]:
        return self.scale[rows] * y

    def pull_rows(self, g: Float[Array, "N D"], rows: Int[Array, " N"]) -> Float[Array, "N D"]:
        return self.scale[rows] * g

    def pull_curvature(self, G: Float[Array, "K D D"]) -> Float[Array, "K D"]:
        return jnp.diagonal(G, axis1=-2, axis2=-1) * self.scale**2

    def unpull_curvature(self, A: Float[Array, "K D"]) -> Float[Array, "K D D"]:
        return (A / self.scale**2)[:, :, None] * jnp.eye(self.dim, dtype=A.dtype)

    def scaled(self, A: Float[Array, "K D"], by: Float[Array, " K"]) -> Float[Array, "K D"]:
        return A * by[:, None]

    def plus_identity(self, A: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return A + 1

    def square(self, A: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return A * A

    def spectrum(self, A: Float[Array, "K D"]) -> tuple[Float[Array, "K D"], None]:
        return A, None

    def into_basis(self, basis: None, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return v

    def from_basis(self, basis: None, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return v

    def from_spectrum(self, values: Float[Array, "K D"], basis: None) -> Float[Array, "K D"]:
        return values

    def factor(self, P: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return jnp.sqrt(jnp.where(P > 0, P, jnp.nan))

    def solve(self, U: Float[Array, "K D"], v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return v / U**2

    def moved(self, U: Float[Array, "K D"], shift: Float[Array, "K D"]) -> Self:
        return type(self)(self.mean + self.push(shift), self.scale / U)

    def features(self, y: Float[Array, "N D"]) -> Float[Array, "N F"]:
        return jnp.concatenate([y * y - 1, y], axis=1)

    def unpack(self, coefficients: Float[Array, "K F"]) -> tuple[Float[Array, "K D"], Float[Array, "K D"]]:
        quadratic, linear = jnp.split(coefficients, 2, axis=1)
        return 2 * quadratic, linear

    def cross_moment(
        self, y: Float[Array, "K N D"], w: Float[Array, "N K"], v: Float[Array, "N D"]
    ) -> Float[Array, "K D"]:
        return einsum("kni,nk,ni->ki", y, w, v)

    def second_moment(self, y: Float[Array, "K N D"], w: Float[Array, "N K"]) -> Float[Array, "K D"]:
        return einsum("kni,nk->ki", y * y, w)

    def finish_cross_moment(self, M: Float[Array, "K D"]) -> Float[Array, "K D"]:
        return M * self.scale

    def precision_weighted_sum(self, y: Float[Array, "K N D"], r: Float[Array, "N K"]) -> Float[Array, "N D"]:
        return jnp.sum(y * r.T[:, :, None] / self.scale[:, None], axis=0)

    def std(self) -> Float[Array, "K D"]:
        return self.scale

    def marginal(self, dims: Int[np.ndarray, " M"]) -> Self:
        return type(self)(self.mean[:, dims], self.scale[:, dims])

    def condition(
        self, fixed: Int[np.ndarray, " B"], free: Int[np.ndarray, " M"], value: Float[Array, " B"]
    ) -> tuple[Float[Array, " K"], Self]:
        return self.marginal(fixed).log_prob(value[None])[0], self.marginal(free)

    def rescale(self, factors: Float[Array, " D"], shift: Float[Array, " D"]) -> Self:
        return type(self)(factors * self.mean + shift, jnp.abs(factors) * self.scale)

    def multiply(self, other: AbstractGaussians) -> tuple[Float[Array, " K"], AbstractGaussians]:
        if not isinstance(other, DiagonalGaussians):
            return super().multiply(other)
        spread = jnp.hypot(self.scale, other.scale)
        log_normaliser = type(self)(self.mean, spread).log_prob(other.mean)[0]
        mean = other.mean + (other.scale / spread) ** 2 * (self.mean - other.mean)
        return log_normaliser, type(self)(mean, self.scale * (other.scale / spread))

    def _relative_factor(self, other: AbstractGaussians) -> Float[Array, "..."]:
        if not isinstance(other, DiagonalGaussians):
            return super()._relative_factor(other)
        return self.scale[0] / other.scale[0]
