"""Option O: the longest step on the weights within a bound on the KL divergence."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natmix.array_types import Scalar
from natmix.kernels.interval_search import first_inside
from natmix.modules.weight_updaters.base import AbstractWeightUpdater

_HALVINGS = 22
_LOG_SHORTEST = -60.0


class TrustRegionWeightUpdater(AbstractWeightUpdater):
    """q'(o) ~ q(o) exp(E(o) / (eta + T)) with the smallest eta >= 0 such that KL(q' || q) <= stepsize.

    Eq. 9 with the stepsize 1/(eta + T). The KL grows with the stepsize, which is found by bisection.
    """

    letter: ClassVar[str] = "O"
    title: ClassVar[str] = "Trust-Region"

    def step(
        self,
        log_weights: Float[Array, " K"],
        log_ratio: Float[Array, " K"],
        stepsize: Scalar,
        temperature: Scalar,
    ) -> Float[Array, " K"]:
        log_full = -jnp.log(temperature)

        def at(log_b: Float[Array, "*S"]) -> Float[Array, "*S K"]:
            return jax.nn.log_softmax(log_weights + jnp.exp(log_b)[..., None] * log_ratio)

        def inside(log_b: Float[Array, "*S"]) -> Bool[Array, "*S"]:
            return categorical_kl(at(log_b), log_weights) <= stepsize

        # The search is relative to the spread of E, which may have any magnitude.
        spread = jnp.maximum(jnp.max(jnp.abs(log_ratio)), 1e-6)
        shortest = jnp.minimum(log_full, -jnp.log(spread)) + _LOG_SHORTEST / 2
        longest = -first_inside(lambda t: inside(-t), -log_full, -shortest, _HALVINGS, log_weights.size)
        new = at(jnp.where(inside(log_full), log_full, longest))
        return jnp.where(stepsize > 0, new, log_weights)


def categorical_kl(log_p: Float[Array, "*S K"], log_q: Float[Array, " K"]) -> Float[Array, "*S"]:
    """KL(p || q); absent components have log probability -inf in both."""
    gap = jnp.where(log_p > -jnp.inf, log_p - log_q, 0)
    return jnp.sum(jnp.exp(log_p) * gap, axis=-1)
