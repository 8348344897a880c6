"""Option Z: zero-order estimates by weighted least squares (MORE)."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natmix.array_types import RealLike, Scalar
from natmix.gaussians import AbstractGaussians
from natmix.kernels.more_regressions import regressions
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import flag, real
from natmix.modules.ng_estimators.base import AbstractNgEstimator, finite_components
from natmix.modules.per_component import PerComponent
from natmix.modules.records import Batch, NaturalGradient


class More(AbstractNgEstimator):
    """The compatible quadratic R(x) ~ y^T B y + y^T b + c, fitted by weighted ridge regression.

    In whitened coordinates y = L^-1 (x - m), with features that are uncorrelated under the component
    itself; the constant is not regularised. Its Hessian and gradient at the mean are the expected
    ones of Eq. 6, so A = -2 B and a = -b. Only values of the target are used.
    """

    self_normalised: bool = flag(True, "importance weights sum to one per component")
    own_samples_only: bool = flag(False, "a component learns from its own new samples alone")
    ridge: RealLike = real(1e-12, "initial and smallest ridge coefficient", low=0, strict=True)
    max_ridge: RealLike = real(1e-6, "largest ridge coefficient", low=0, strict=True)

    letter: ClassVar[str] = "Z"
    title: ClassVar[str] = "MORE"
    needs_gradient: ClassVar[bool] = False

    @classmethod
    def fit_samples(cls, dim: int, family: type[AbstractGaussians]) -> int:
        coefficients = family.num_features(dim) + 1
        return max(200, 3 * coefficients // 2)

    @classmethod
    def fewest_samples(cls, dim: int, family: type[AbstractGaussians]) -> int:
        return 2 * (family.num_features(dim) + 1)

    def init(self, mixture: Mixture) -> PerComponent[Float[Array, " K"]]:
        return PerComponent.full(mixture.num_components, jnp.asarray(self.ridge, mixture.dtype))

    def estimate(
        self,
        state: PerComponent[Float[Array, " K"]],
        mixture: Mixture,
        batch: Batch,
        temperature: Scalar,
        zero_penalty: Scalar,
    ) -> NaturalGradient:
        pairs = regressions(
            mixture.components,
            mixture.log_weights,
            batch,
            temperature,
            self.self_normalised,
            self.own_samples_only,
        )
        # Standard weights w/n differ from self-normalised ones only in their size relative to the ridge.
        # exp(log_scale) may overflow, so the ridge is divided instead of multiplying the weights.
        ridge = state.value * jnp.exp(-jnp.maximum(pairs.log_scale, -60.0))
        # As in the estimator S, zeros count as zero_penalty log P rather than -zero_penalty (1 - P).
        inside, total = pairs.inside, pairs.total
        extra = jnp.where(inside > 0, zero_penalty * (total / jnp.maximum(inside, 1e-30) - 1), 0)
        coefficients = pairs.regress(mixture.components, mixture.exists, batch, extra, ridge)
        hessian, gradient = mixture.components.unpack(coefficients)
        ok = pairs.ok & (inside > 0) & finite_components(coefficients)
        return NaturalGradient(-hessian, -gradient, ok)

    def feedback(
        self, state: PerComponent[Float[Array, " K"]], success: Bool[Array, " K"]
    ) -> PerComponent[Float[Array, " K"]]:
        up = jnp.minimum(10 * state.value, self.max_ridge)
        down = jnp.maximum(0.5 * state.value, self.ridge)
        return state.set(jnp.where(success, down, up))
