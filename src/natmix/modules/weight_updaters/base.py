"""The contract of a weight updater."""

import abc

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import Scalar
from natmix.modules.hyperparameters import Option, flag

LOG_FLOOR = float(np.log(1e-30))


class AbstractWeightUpdater(Option):
    """Turns expected log-ratios E(o) and a stepsize into new weights."""

    self_normalised: bool = flag(True, "importance weights sum to one per component")

    @abc.abstractmethod
    def step(
        self,
        log_weights: Float[Array, " K"],
        log_ratio: Float[Array, " K"],
        stepsize: Scalar,
        temperature: Scalar,
    ) -> Float[Array, " K"]:
        """New log weights, not necessarily normalised; absent components have -inf and stay absent."""

    def update(
        self,
        log_weights: Float[Array, " K"],
        log_ratio: Float[Array, " K"],
        stepsize: Scalar,
        temperature: Scalar,
    ) -> Float[Array, " K"]:
        """New normalised log weights of the components that exist, none below 1e-30.

        Args:
            log_weights: log q(o), -inf for absent components.
            log_ratio: E(o) = E[log p~ - T log q] under q(x|o); finite for components that exist.
            stepsize: b, or the KL bound.
            temperature: T.
        """
        exists = log_weights > -jnp.inf
        best = jnp.max(jnp.where(exists, log_ratio, -jnp.inf))
        centred = jnp.where(exists, log_ratio - best, 0)
        new = jax.nn.log_softmax(self.step(log_weights, centred, stepsize, temperature))
        floored = jnp.where(exists, jnp.maximum(new, LOG_FLOOR), -jnp.inf)
        return jax.nn.log_softmax(floored)
