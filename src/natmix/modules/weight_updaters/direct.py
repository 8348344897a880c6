"""Option U: the plain natural-gradient step on the weights."""

from typing import ClassVar

from jaxtyping import Array, Float

from natmix.array_types import Scalar
from natmix.modules.weight_updaters.base import AbstractWeightUpdater


class DirectWeightUpdater(AbstractWeightUpdater):
    """q'(o) ~ q(o) exp(b E(o) / T), Eq. 9."""

    letter: ClassVar[str] = "U"
    title: ClassVar[str] = "Direct"

    def step(
        self,
        log_weights: Float[Array, " K"],
        log_ratio: Float[Array, " K"],
        stepsize: Scalar,
        temperature: Scalar,
    ) -> Float[Array, " K"]:
        return log_weights + stepsize / temperature * log_ratio
