"""Option N: a stepsize that follows the improvement of the lower bound."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

from natmix.array_types import Count, RealLike, Scalar
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import real
from natmix.modules.improvement import adapted, check_limits
from natmix.modules.weight_stepsizes.base import AbstractWeightStepsize


class AdaptiveState(eqx.Module):
    """The stepsize and the objective one iteration earlier."""

    stepsize: Scalar
    previous: Scalar


class AdaptiveWeightStepsize(AbstractWeightStepsize):
    """b <- min(increase * b, max) when the objective rose, else max(decrease * b, min).

    The initial value is kept until two objectives are known and may lie outside [min, max].
    """

    stepsize: RealLike = real(1.0, "initial stepsize, or KL bound with O", low=0)
    min_stepsize: RealLike = real(1e-5, "smallest adapted stepsize", low=0)
    max_stepsize: RealLike = real(4.0, "largest adapted stepsize; 1 with U in a codename", low=0)
    increase: RealLike = real(1.15, "factor after an improvement", low=1)
    decrease: RealLike = real(0.85, "factor otherwise, ties included", low=0, high=1)

    letter: ClassVar[str] = "N"
    title: ClassVar[str] = "Adaptive"

    def __check_init__(self) -> None:
        check_limits(self)

    def init(self, mixture: Mixture) -> AdaptiveState:
        return AdaptiveState(jnp.asarray(self.stepsize, mixture.dtype), jnp.zeros((), mixture.dtype))

    def update(self, state: AdaptiveState, objective: Scalar, updates: Count) -> tuple[AdaptiveState, Scalar]:
        new = adapted(self, state.stepsize, objective > state.previous)
        stepsize = jnp.where(updates >= 2, new, state.stepsize)
        return AdaptiveState(stepsize, objective), stepsize
