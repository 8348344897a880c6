"""Option X: the same stepsize throughout."""

from typing import ClassVar

import jax.numpy as jnp

from natmix.array_types import Count, RealLike, Scalar
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import real
from natmix.modules.weight_stepsizes.base import AbstractWeightStepsize


class FixedWeightStepsize(AbstractWeightStepsize):
    """b = stepsize; 1 with U is the greedy step of VIPS, 0 keeps the weights."""

    stepsize: RealLike = real(1.0, "stepsize, or KL bound with O", low=0)

    letter: ClassVar[str] = "X"
    title: ClassVar[str] = "Fixed"

    def init(self, mixture: Mixture) -> None:
        return None

    def update(self, state: None, objective: Scalar, updates: Count) -> tuple[None, Scalar]:
        return None, jnp.asarray(self.stepsize, objective.dtype)
