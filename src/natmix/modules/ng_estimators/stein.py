"""Option S: first-order estimates by Stein's lemma."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natmix.array_types import Scalar
from natmix.kernels.batching import batch_any
from natmix.kernels.gaussian_batch import Curvature
from natmix.kernels.importance_weights import importance_weights, own_weights
from natmix.kernels.scores import mixture_score
from natmix.kernels.stein_sums import own_stein_sums, score_moments, stein_sums
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import flag
from natmix.modules.ng_estimators.base import AbstractNgEstimator, finite_components
from natmix.modules.records import Batch, NaturalGradient


class Stein(AbstractNgEstimator):
    """E[grad R] by Monte Carlo (Eq. 6) and E[hess R] = E[S^-1 (x - m) grad R^T] (Eq. 7), symmetrised.

    Where the target's density is zero it has no gradient. The drop of the log density at the border of its
    support enters by the score function instead, as a reward ``zero_penalty`` log P, where P is the
    component's probability of a positive density: grad log P = E[score | positive] - E[score]. Near P = 1
    this is a drop of ``zero_penalty`` nats; for small P its gradient grows like 1/P, so that no gain in
    entropy outweighs it. A component without a sample of positive density is not updated.
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
        score = mixture_score(gaussians, batch.log_components, mixture.log_weights, batch.x, batch.count)
        grad_ratio = jnp.where(batch.valid[:, None], batch.gradient - temperature * score, 0)
        sums_of = own_stein_sums if self.own_samples_only else stein_sums
        sums = sums_of(gaussians, batch, grad_ratio, self.self_normalised)
        hessian, gradient, inside, total, log_scale, ok = sums

        def fall(_: None) -> tuple[Curvature, Float[Array, "K D"]]:
            tiny = jnp.finfo(batch.x.dtype).tiny
            if self.own_samples_only:
                weights = own_weights(batch, self_normalised=self.self_normalised).values
            else:
                weights = importance_weights(
                    batch.log_components, batch, self_normalised=self.self_normalised
                ).values
            inside_only = jnp.where(batch.zero[:, None], 0, weights)
            c = inside_only / jnp.maximum(inside, tiny) - weights / jnp.maximum(total, tiny)
            return score_moments(gaussians, zero_penalty * c, batch.x, batch.count)

        def no_fall(_: None) -> tuple[Curvature, Float[Array, "K D"]]:
            return jnp.zeros_like(hessian), jnp.zeros_like(gradient)

        def fall_if_any(_: None) -> tuple[Curvature, Float[Array, "K D"]]:
            return jax.lax.cond(zeros, fall, no_fall, None)

        zeros = jnp.any(batch.zero)
        hessian_0, gradient_0 = jax.lax.cond(batch_any(zeros), fall_if_any, no_fall, None)
        size = jnp.exp(log_scale)
        A = -gaussians.scaled(hessian, size) - hessian_0
        a = -gradient * size[:, None] - gradient_0
        return NaturalGradient(A, a, ok & (inside > 0) & finite_components(A) & finite_components(a))

    def feedback(self, state: None, success: Bool[Array, " K"]) -> None:
        return None
