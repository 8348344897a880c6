"""The interface that every covariance family implements: a batch of Gaussians.

K Gaussians N(m, S) with S = L L^T. Two kinds of coordinates are used:

    y = L^-1 (x - m)        whitened: the Gaussian is N(0, I) there
    A = L^T G L, a = L^T g  a curvature G and a gradient g seen from whitened coordinates

A whitened symmetric matrix ("curvature") is an array whose shape only the family knows, [K, D, D] for full
and [K, D] for diagonal covariances; the algebra on it is part of the interface, so estimators and updaters
are written once. Everything stays accurate for ill-conditioned S because S never appears in it.

A new family implements the abstract methods below and is registered by `natmix.gaussians.register`. The other
methods use the dense factors L and L^-1; a family overrides those for which it has a faster form.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count
from natmix.kernels import log_densities, scores
from natmix.kernels.blocks import block_rows, map_blocks
from natmix.kernels.gaussian_batch import LOG_2PI, Curvature, TriangularFactors
from natmix.kernels.linalg import einsum


class AbstractGaussians(eqx.Module):
    """K Gaussians in D dimensions.

    Attributes:
        name: of the family, as in ``fit(covariance=name)`` and in files.
        axis_aligned: whether all covariances are diagonal by construction.
        mean: m.
    """

    name: eqx.AbstractClassVar[str]
    axis_aligned: ClassVar[bool] = False

    mean: eqx.AbstractVar[Float[Array, "K D"]]

    # Construction -------------------------------------------------------------------------------

    @classmethod
    @abc.abstractmethod
    def from_covariance(cls, mean: Float[Array, "K D"], covariance: Float[Array, "K D D"]) -> Self:
        """From dense covariances, or what the family can represent of them (the diagonals, for example)."""

    @classmethod
    @abc.abstractmethod
    def isotropic(cls, mean: Float[Array, "K D"], scale: Float[Array, " K"]) -> Self:
        """Covariances scale^2 I."""

    @classmethod
    def from_std(cls, mean: Float[Array, "K D"], std: Float[Array, "K D"]) -> Self:
        """Covariances diag(std^2), or what the family can represent of them."""
        return cls.from_covariance(mean, std[:, :, None] ** 2 * jnp.eye(mean.shape[-1], dtype=mean.dtype))

    # Files --------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Float[Array, "K ..."]]:
        """The arrays that are saved to a file, by name; `from_parameters` is the inverse."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Float[Array, "K ..."]]) -> Self:
        """The inverse of `parameters`."""
        return cls(**parameters)

    @classmethod
    def flaw(cls, parameters: Mapping[str, np.ndarray]) -> str:
        """What is wrong with finite `parameters` of the right shapes, as a clause; empty if nothing is."""
        return ""

    @classmethod
    def parameter_shapes(cls, capacity: int, dim: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the `parameters` of K Gaussians in D dimensions."""
        return {name: array.shape for name, array in cls._abstract(capacity, dim).parameters().items()}

    @classmethod
    def _abstract(cls, capacity: int, dim: int) -> Self:
        """K Gaussians with shapes in place of arrays."""
        return jax.eval_shape(lambda: cls.isotropic(jnp.zeros((capacity, dim)), jnp.ones(capacity)))

    def astype(self, dtype: Any) -> Self:
        """The same Gaussians in another floating-point type."""
        return jax.tree.map(lambda a: a.astype(dtype), self)

    # Shape --------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """K, padding included."""
        return self.mean.shape[-2]

    @property
    def dim(self) -> int:
        """D."""
        return self.mean.shape[-1]

    @property
    def dtype(self) -> np.dtype:
        """The floating-point type."""
        return self.mean.dtype

    # Geometry -----------------------------------------------------------------------------------

    @abc.abstractmethod
    def covariance(self) -> Float[Array, "K D D"]:
        """Dense covariances S."""

    @abc.abstractmethod
    def cholesky(self) -> Float[Array, "K D D"]:
        """Dense lower triangular factors L."""

    @abc.abstractmethod
    def inverse_cholesky(self) -> Float[Array, "K D D"]:
        """Dense L^-1."""

    @abc.abstractmethod
    def half_log_det(self) -> Float[Array, " K"]:
        """Log |L| = 0.5 log |S|."""

    def log_normaliser(self) -> Float[Array, " K"]:
        """What is subtracted from -|L^-1 (x - m)|^2 / 2 in the log density: 0.5 log |2 pi S|."""
        return self.half_log_det() + 0.5 * self.dim * LOG_2PI

    @abc.abstractmethod
    def whiten(self, x: Float[Array, "N D"]) -> Float[Array, "K N D"]:
        """Y = L^-1 (x - m) for every component and sample."""

    @abc.abstractmethod
    def colour(self, y: Float[Array, "K N D"]) -> Float[Array, "K N D"]:
        """X = m + L y: turns standard normal draws into samples."""

    @abc.abstractmethod
    def colour_rows(self, y: Float[Array, "N D"], rows: Int[Array, " N"]) -> Float[Array, "N D"]:
        """X = m + L y with the component of each sample given."""

    @abc.abstractmethod
    def pull(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        """L^T v: a gradient seen from whitened coordinates."""

    @abc.abstractmethod
    def push(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        """L v: a whitened step in the original coordinates."""

    @abc.abstractmethod
    def unpull(self, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        """L^-T v: the inverse of ``pull``."""

    def push_rows(self, y: Float[Array, "N D"], rows: Int[Array, " N"]) -> Float[Array, "N D"]:
        """L y with the component of each vector given."""
        L = self.cholesky()
        return map_blocks(lambda y, k: einsum("nj,nij->ni", y, L[k]), (y, rows), block_rows(self.dim**2))

    def pull_rows(self, g: Float[Array, "N D"], rows: Int[Array, " N"]) -> Float[Array, "N D"]:
        """L^T g with the component of each gradient given."""
        L = self.cholesky()
        return map_blocks(lambda g, k: einsum("nj,nji->ni", g, L[k]), (g, rows), block_rows(self.dim**2))

    @abc.abstractmethod
    def pull_curvature(self, G: Float[Array, "K D D"]) -> Curvature:
        """A = L^T G L, or what the family can represent of it (its diagonal, for example)."""

    @abc.abstractmethod
    def unpull_curvature(self, A: Curvature) -> Float[Array, "K D D"]:
        """G = L^-T A L^-1, dense."""

    # Algebra of whitened curvatures -------------------------------------------------------------

    @abc.abstractmethod
    def scaled(self, A: Curvature, by: Float[Array, " K"]) -> Curvature:
        """A times one number per component."""

    @abc.abstractmethod
    def plus_identity(self, A: Curvature) -> Curvature:
        """I + A."""

    @abc.abstractmethod
    def square(self, A: Curvature) -> Curvature:
        """A A."""

    @abc.abstractmethod
    def spectrum(self, A: Curvature) -> tuple[Float[Array, "K D"], Any]:
        """Eigenvalues of A and the basis they belong to."""

    @abc.abstractmethod
    def into_basis(self, basis: Any, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        """Coordinates of v in an eigenbasis."""

    @abc.abstractmethod
    def from_basis(self, basis: Any, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        """The inverse of ``into_basis``."""

    @abc.abstractmethod
    def from_spectrum(self, values: Float[Array, "K D"], basis: Any) -> Curvature:
        """The curvature with these eigenvalues."""

    @abc.abstractmethod
    def factor(self, P: Curvature) -> Curvature:
        """U with P = U U^T (upper triangular), NaN where P is not positive definite."""

    @abc.abstractmethod
    def solve(self, U: Curvature, v: Float[Array, "K D"]) -> Float[Array, "K D"]:
        """P^-1 v with P = U U^T."""

    @abc.abstractmethod
    def moved(self, U: Curvature, shift: Float[Array, "K D"]) -> Self:
        """New Gaussians with mean m + L shift and, in the old whitened coordinates, precision U U^T."""

    # Regression on quadratic features (MORE) ----------------------------------------------------

    @abc.abstractmethod
    def features(self, y: Float[Array, "N D"]) -> Float[Array, "N F"]:
        """Quadratic and linear features, uncorrelated under N(0, I); without the constant."""

    @classmethod
    def num_features(cls, dim: int) -> int:
        """How many `features` there are in D dimensions."""
        return jax.eval_shape(lambda g: g.features(g.mean), cls._abstract(1, dim)).shape[1]

    @abc.abstractmethod
    def unpack(self, coefficients: Float[Array, "K F"]) -> tuple[Curvature, Float[Array, "K D"]]:
        """Hessian and gradient of the fitted quadratic, averaged over y ~ N(0, I)."""

    # Sums for Stein's lemma ----------------------------------------------------------------------------

    @abc.abstractmethod
    def cross_moment(
        self, y: Float[Array, "K N D"], w: Float[Array, "N K"], v: Float[Array, "N D"]
    ) -> Float[Array, " K *form"]:
        """Of every component: sum_n w y v^T, or what the family can represent of it."""

    @abc.abstractmethod
    def second_moment(self, y: Float[Array, "K N D"], w: Float[Array, "N K"]) -> Curvature:
        """Of every component: sum_n w y y^T."""

    @abc.abstractmethod
    def finish_cross_moment(self, M: Float[Array, " K *form"]) -> Curvature:
        """The symmetric part of M L for a `cross_moment` M: the whitened curvature of Stein's lemma."""

    @abc.abstractmethod
    def precision_weighted_sum(self, y: Float[Array, "K N D"], r: Float[Array, "N K"]) -> Float[Array, "N D"]:
        """Of every sample: sum_k r L^-T y, that is sum_k r S^-1 (x - m)."""

    # Closed-form algebra: dense, unless the family is closed under the operation -----------------

    def std(self) -> Float[Array, "K D"]:
        """Marginal standard deviations of every component."""
        return jnp.linalg.norm(self.cholesky(), axis=-1)

    def marginal(self, dims: Int[np.ndarray, " M"]) -> "AbstractGaussians":
        """The distributions of some dimensions."""
        from natmix.gaussians import algebra

        return algebra.marginal(self, dims)

    def condition(
        self, fixed: Int[np.ndarray, " B"], free: Int[np.ndarray, " M"], value: Float[Array, " B"]
    ) -> tuple[Float[Array, " K"], "AbstractGaussians"]:
        """Log densities of ``value`` in the ``fixed`` dimensions, and the ``free`` ones given that value."""
        from natmix.gaussians import algebra

        return algebra.condition(self, fixed, free, value)

    def affine(self, matrix: Float[Array, "M D"], shift: Float[Array, " M"]) -> "AbstractGaussians":
        """The distributions of ``matrix @ x + shift``; ``matrix`` has full row rank."""
        from natmix.gaussians import algebra

        return algebra.affine(self, matrix, shift)

    def rescale(self, factors: Float[Array, " D"], shift: Float[Array, " D"]) -> "AbstractGaussians":
        """The distributions of ``factors * x + shift``; no factor is zero."""
        from natmix.gaussians import algebra

        return algebra.rescale(self, factors, shift)

    def multiply(self, other: "AbstractGaussians") -> tuple[Float[Array, " K"], "AbstractGaussians"]:
        """The product with the one Gaussian ``other``: log normalisers, and the normalised Gaussians."""
        from natmix.gaussians import algebra

        return algebra.multiply(self, other)

    def kl(self, other: "AbstractGaussians") -> Float[Array, ""]:
        """KL(self || other) between the first Gaussians of both."""
        shift = other.whiten(self.mean)[0, 0]
        log_ratio = other.half_log_det()[0] - self.half_log_det()[0]
        ratio = self._relative_factor(other)
        return 0.5 * (jnp.sum(ratio**2) + jnp.sum(shift**2) - self.dim) + log_ratio

    def _relative_factor(self, other: "AbstractGaussians") -> Float[Array, "..."]:
        """L_other^-1 L of the first Gaussians of both, or only its nonzero entries."""
        return jax.scipy.linalg.solve_triangular(other.cholesky()[0], self.cholesky()[0], lower=True)

    # What follows is written once ---------------------------------------------------------------

    @property
    def factors(self) -> TriangularFactors | None:
        """Dense triangular factors, which some kernels need; None for families without them."""
        return None

    def with_factors(self, factors: TriangularFactors) -> Self:
        """The same kind of Gaussians with other means and factors."""
        raise TypeError(f"{type(self).__name__} have no triangular factors.")

    def squared_distances(self, x: Float[Array, "N D"]) -> Float[Array, "K N"]:
        """|L^-1 (x - m)|^2."""
        y = self.whiten(x)
        return jnp.sum(y * y, axis=-1)

    def log_prob(
        self,
        x: Float[Array, "N D"],
        count: Count | None = None,
        present: Bool[Array, " K"] | None = None,
    ) -> Float[Array, "N K"]:
        """Log N(x; m, S) of every sample under every component; undefined under absent components."""
        return log_densities.log_prob(self, x, count, present)

    def mixture_log_prob(
        self, log_weights: Float[Array, " K"], x: Float[Array, "N D"], count: Count | None = None
    ) -> Float[Array, " N"]:
        """Log sum_k w_k N(x; m, S), without keeping an N x K array."""
        return log_densities.mixture_log_prob(self, log_weights, x, count)

    def mixture_score(
        self, responsibilities: Float[Array, "N K"], x: Float[Array, "N D"], count: Count | None = None
    ) -> Float[Array, "N D"]:
        """Grad log q(x) = -sum_k q(k|x) S^-1 (x - m)."""
        return scores.weighted_score(self, responsibilities, x, count)

    def entropy(self) -> Float[Array, " K"]:
        """0.5 log |2 pi e S|."""
        return self.half_log_det() + 0.5 * self.dim * (1 + LOG_2PI)

    def where(self, mask: Bool[Array, " K"], other: Self) -> Self:
        """The Gaussians of self where ``mask`` holds, of ``other`` elsewhere."""
        return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), self, other)

    def finite(self) -> Bool[Array, " K"]:
        """Which Gaussians have only finite parameters and a positive scale."""
        # 0 * a is 0 for finite a and NaN otherwise, so one sum checks all entries.
        zeros = [jnp.sum(0 * a.reshape(a.shape[0], -1), axis=1) for a in jax.tree.leaves(self)]
        return jnp.isfinite(sum(zeros) + 0 * self.half_log_det())

    def rounding(self) -> Float[Array, " K"]:
        """How far rounding may move a sample, in standard deviations of the narrowest directions.

        eps |L^-1 diag(|m| + s)| with s the marginal standard deviations; invariant to rescaled coordinates.
        """
        return jnp.finfo(self.dtype).eps * self.narrowness()

    @abc.abstractmethod
    def narrowness(self) -> Float[Array, " K"]:
        """|L^-1 diag(|m| + s)|, with s the marginal standard deviations: see `rounding`."""

    def take(self, slots: Int[Array, " K2"]) -> Self:
        """The Gaussians in these slots."""
        return jax.tree.map(lambda a: a[slots], self)
