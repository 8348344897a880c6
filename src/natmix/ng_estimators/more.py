"""Option Z: zero-order estimates by weighted least squares (MORE)."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float

from natmix._blocks import block_rows, map_components, rows_at_once, sum_blocks
from natmix._hyper import flag, real
from natmix._linalg import einsum
from natmix._records import Batch, NaturalGradient
from natmix._rows import PerComponent
from natmix._types import Scalar
from natmix.gaussians import AbstractGaussians
from natmix.mixture import Mixture
from natmix.ng_estimators._base import (
    AbstractNgEstimator,
    estimator_weights,
    finite_rows,
    positive_and_total,
    responsibilities_and_log_density,
)

_REFINEMENTS = 3
_SQUARES = 8
"""Matrices of features by features that a regression holds at a time, at most."""


class More(AbstractNgEstimator):
    """The compatible quadratic R(x) ~ y^T B y + y^T b + c, fitted by weighted ridge regression.

    In whitened coordinates y = L^-1 (x - m), with features that are uncorrelated under the component
    itself; the constant is not regularised. Its Hessian and gradient at the mean are the expected
    ones of Eq. 6, so A = -2 B and a = -b. Only values of the target are used.
    """

    self_normalised: bool = flag(True, "importance weights sum to one per component")
    own_samples_only: bool = flag(False, "a component learns from its own new samples alone")
    ridge: Array = real(1e-12, "initial and smallest ridge coefficient", low=0, strict=True)
    max_ridge: Array = real(1e-6, "largest ridge coefficient", low=0, strict=True)

    letter: ClassVar[str] = "Z"
    title: ClassVar[str] = "MORE"
    needs_gradient: ClassVar[bool] = False

    def init(self, mixture: Mixture) -> PerComponent[Float[Array, " K"]]:
        return PerComponent.full(mixture.num_components, self.ridge.astype(mixture.dtype))

    def estimate(
        self,
        state: PerComponent[Float[Array, " K"]],
        mixture: Mixture,
        batch: Batch,
        temperature: Scalar,
        zero_penalty: Scalar,
    ) -> NaturalGradient:
        _, log_q = responsibilities_and_log_density(batch.log_components, mixture.log_weights)
        reward = jnp.where(batch.valid, batch.log_target - temperature * log_q, 0)
        weights = estimator_weights(batch, self.self_normalised, self.own_samples_only)
        gaussians = mixture.components

        # Standard weights enter as w/n: only their size relative to the ridge differs from
        # self-normalised ones, and exp(log_scale) may overflow, so the ridge is divided instead.
        ridge = state.value * jnp.exp(-jnp.maximum(weights.log_scale, -60.0))
        # As in the estimator S: zeros count as zero_penalty log P rather than -zero_penalty (1 - P).
        inside, total = positive_and_total(weights, batch)
        extra = jnp.where(inside > 0, zero_penalty * (total / jnp.maximum(inside, 1e-30) - 1), 0)
        rows = (jnp.arange(gaussians.capacity), weights.values.T, ridge, extra)
        F = _num_features(gaussians)
        at_once = min(rows_at_once(_SQUARES * F * F, on_cpu=1), gaussians.capacity)
        block = Partial(_coefficients, gaussians, batch, reward, at_once)
        coefficients = map_components(block, rows, mixture.log_weights > -jnp.inf, at_once)
        hessian, gradient = gaussians.unpack(coefficients)
        ok = weights.ok & (inside > 0) & finite_rows(coefficients)
        return NaturalGradient(-hessian, -gradient, ok)

    def feedback(
        self, state: PerComponent[Float[Array, " K"]], success: Bool[Array, " K"]
    ) -> PerComponent[Float[Array, " K"]]:
        up = jnp.minimum(10 * state.value, self.max_ridge)
        down = jnp.maximum(0.5 * state.value, self.ridge)
        return state.set(jnp.where(success, down, up))


def _coefficients(
    gaussians: AbstractGaussians, batch: Batch, reward: Float[Array, " N"], at_once: int, *rows: Array
) -> Float[Array, "B F"]:
    """Of ``at_once`` components: their numbers, weights [B, N], ridges, and what zeros cost them beside."""

    def one(k: Array, w: Array, ridge: Array, extra: Array) -> Float[Array, " F"]:
        own_reward = jnp.where(batch.zero, reward - extra, reward)
        return _ridge_regression(gaussians.take(k[None]), w, batch, own_reward, ridge, at_once)

    return jax.vmap(one)(*rows)


def _ridge_regression(
    gaussian: AbstractGaussians,
    w: Float[Array, " N"],
    batch: Batch,
    reward: Float[Array, " N"],
    ridge: Scalar,
    at_once: int,
) -> Float[Array, " F"]:
    """Coefficients of the features; the constant is eliminated by centring.

    The normal equations get at least the jitter that the floating-point type can resolve, and
    iterative refinement takes its bias away again wherever the samples determine the answer.
    """
    total = jnp.maximum(jnp.sum(w), jnp.finfo(w.dtype).tiny)
    centre = jnp.sum(w * reward) / total
    F = _num_features(gaussian)

    def moments(
        x: Float[Array, "B D"], w: Float[Array, " B"], r: Float[Array, " B"]
    ) -> tuple[Array, Array, Array]:
        phi = gaussian.features(gaussian.whiten(x)[0])
        weighted = phi * w[:, None]
        return einsum("nf,ng->fg", weighted, phi), einsum("nf,n->f", weighted, r), jnp.sum(weighted, axis=0)

    gram, rhs, mean = sum_blocks(
        moments, (batch.x, w, jnp.where(w > 0, reward - centre, 0)), block_rows(4 * F * at_once), batch.count
    )
    gram = gram - mean[:, None] * mean / total
    identity = jnp.eye(F, dtype=gram.dtype)
    system = gram + ridge * identity
    jitter = 10 * jnp.finfo(gram.dtype).eps * jnp.max(jnp.diagonal(gram))
    factor = jnp.linalg.cholesky(gram + jnp.maximum(ridge, jitter) * identity)

    def refine(beta: Float[Array, " F"], _: None) -> tuple[Float[Array, " F"], None]:
        residual = rhs - einsum("fg,g->f", system, beta)
        return beta + jax.scipy.linalg.cho_solve((factor, True), residual), None

    beta, _ = jax.lax.scan(refine, jnp.zeros_like(rhs), None, length=1 + _REFINEMENTS)
    return beta


def _num_features(gaussians: AbstractGaussians) -> int:
    """As many columns as features of one point."""
    return jax.eval_shape(gaussians.features, gaussians.mean).shape[1]
