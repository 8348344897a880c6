"""Option S: first-order estimates by Stein's lemma."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natmix.array_types import Scalar
from natmix.gaussians import AbstractGaussians
from natmix.gaussians.base import Curvature
from natmix.kernels.batching import anyone
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import flag
from natmix.modules.ng_estimators import in_passes
from natmix.modules.ng_estimators.base import (
    AbstractNgEstimator,
    estimator_weights,
    finite_rows,
    positive_and_total,
    responsibilities_and_log_density,
)
from natmix.modules.ng_estimators.in_passes import SteinSums
from natmix.modules.records import Batch, NaturalGradient


class Stein(AbstractNgEstimator):
    """E[grad R] by Monte Carlo (Eq. 6) and E[hess R] = E[S^-1 (x - m) grad R^T] (Eq. 7), symmetrised.

    Where the target's density is zero there is no gradient; the fall of the log density at the
    border enters by the score function instead, as ``zero_penalty`` log P with P the component's
    share of positive density: grad log P = E[score | positive] - E[score]. Near P = 1 this is a fall
    of ``zero_penalty`` nats; for small P it grows like 1/P, so that no gain in entropy outweighs it.
    A component without a single positive sample knows no way back and is left alone.
    """

    self_normalised: bool = flag(True, "importance weights sum to one per component")
    own_samples_only: bool = flag(False, "a component learns from its own new samples alone")

    letter: ClassVar[str] = "S"
    title: ClassVar[str] = "Stein"
    needs_gradient: ClassVar[bool] = True

    def init(self, mixture: Mixture) -> None:
        return None

    def estimate(
        self, state: None, mixture: Mixture, batch: Batch, temperature: Scalar, zero_penalty: Scalar
    ) -> NaturalGradient:
        assert batch.gradient is not None
        gaussians = mixture.components
        pays = in_passes.pays(gaussians, batch)
        if pays:
            score = in_passes.mixture_score(mixture, batch)
        else:
            r, _ = responsibilities_and_log_density(batch.log_components, mixture.log_weights)
            score = gaussians.mixture_score(r, batch.x, batch.count)
        grad_ratio = jnp.where(batch.valid[:, None], batch.gradient - temperature * score, 0)
        if pays and not self.own_samples_only:
            sums = in_passes.stein_sums(gaussians, batch, grad_ratio, self.self_normalised)
        else:
            sums = self._sums(gaussians, batch, grad_ratio)
        hessian, gradient, inside, total, log_scale, ok = sums

        def fall(_: None) -> tuple[Curvature, Float[Array, "K D"]]:
            tiny = jnp.finfo(batch.x.dtype).tiny
            weights = estimator_weights(batch, self.self_normalised, self.own_samples_only).values
            inside_only = jnp.where(batch.zero[:, None], 0, weights)
            c = inside_only / jnp.maximum(inside, tiny) - weights / jnp.maximum(total, tiny)
            return gaussians.score_moments(zero_penalty * c, batch.x, batch.count)

        def no_fall(_: None) -> tuple[Curvature, Float[Array, "K D"]]:
            return jnp.zeros_like(hessian), jnp.zeros_like(gradient)

        def fall_if_any(_: None) -> tuple[Curvature, Float[Array, "K D"]]:
            return jax.lax.cond(zeros, fall, no_fall, None)

        zeros = jnp.any(batch.zero)
        hessian_0, gradient_0 = jax.lax.cond(anyone(zeros), fall_if_any, no_fall, None)
        size = jnp.exp(log_scale)
        A = -gaussians.scaled(hessian, size) - hessian_0
        a = -gradient * size[:, None] - gradient_0
        return NaturalGradient(A, a, ok & (inside > 0) & finite_rows(A) & finite_rows(a))

    def _sums(self, gaussians: AbstractGaussians, batch: Batch, grad_ratio: Array) -> SteinSums:
        weights = estimator_weights(batch, self.self_normalised, self.own_samples_only)
        inside, total = positive_and_total(weights, batch)
        if self.own_samples_only and batch.own is not None:
            mine = batch.own >= 0
            w = jnp.where(mine, jnp.take_along_axis(weights.values.T, batch.own, axis=1), 0)
            hessian, gradient = gaussians.own_stein(w, batch.x[batch.own], grad_ratio[batch.own])
        else:
            hessian, gradient = gaussians.stein(weights.values, batch.x, grad_ratio, batch.count)
        return SteinSums(hessian, gradient, inside, total, weights.log_scale, weights.ok)

    def feedback(self, state: None, success: Bool[Array, " K"]) -> None:
        return None
