"""The contract of an estimator."""

import abc
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natmix.array_types import PyTree, Scalar
from natmix.kernels.importance_weights import ImportanceWeights, importance_weights, own_weights
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import Option
from natmix.modules.records import Batch, NaturalGradient


class AbstractNgEstimator(Option):
    """Estimates G = -E[hess R] and g = -E[grad R] of R = log p~ - T log q under each component."""

    needs_gradient: ClassVar[bool]
    """Whether the target's gradient is asked for."""

    @abc.abstractmethod
    def init(self, mixture: Mixture) -> PyTree:
        """The state before the first iteration."""

    @abc.abstractmethod
    def estimate(
        self, state: PyTree, mixture: Mixture, batch: Batch, temperature: Scalar, zero_penalty: Scalar
    ) -> NaturalGradient:
        """Natural gradients of all components."""

    @abc.abstractmethod
    def feedback(self, state: PyTree, success: Bool[Array, " K"]) -> PyTree:
        """Learn which component updates succeeded."""


def estimator_weights(batch: Batch, self_normalised: bool, own_samples_only: bool) -> ImportanceWeights:
    """The weights both estimators use."""
    if own_samples_only:
        return own_weights(batch, self_normalised=self_normalised)
    return importance_weights(batch.log_components, batch, self_normalised=self_normalised)


def positive_and_total(
    weights: ImportanceWeights, batch: Batch
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Each component's weight where the density is positive, and its whole weight."""
    positive = jnp.sum(jnp.where(batch.zero[:, None], 0, weights.values), axis=0)
    return positive, jnp.sum(weights.values, axis=0)


def finite_rows(values: Float[Array, "K ..."]) -> Bool[Array, " K"]:
    """Which rows are finite throughout."""
    return jnp.all(jnp.isfinite(values.reshape(values.shape[0], -1)), axis=1)


def responsibilities_and_log_density(
    log_components: Float[Array, "N K"], log_weights: Float[Array, " K"]
) -> tuple[Float[Array, "N K"], Float[Array, " N"]]:
    """q(o|x) and log q(x)."""
    joint = log_components + log_weights
    log_q = jax.nn.logsumexp(joint, axis=1)
    return jnp.exp(joint - log_q[:, None]), log_q
