"""The contract of an estimator."""

import abc
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from natmix.array_types import PyTree, Scalar
from natmix.gaussians import AbstractGaussians
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import Option
from natmix.modules.records import Batch, NaturalGradient


class AbstractNgEstimator(Option):
    """Estimates G = -E[hess R] and g = -E[grad R] of R = log p~ - T log q under each component."""

    needs_gradient: ClassVar[bool]
    """Whether the target's gradient is asked for."""

    @classmethod
    def fit_samples(cls, dim: int, family: type[AbstractGaussians]) -> int:
        """Samples per component that suit the dimension, unless the user says how many."""
        return int(np.clip(10 * dim, 100, 300))

    @classmethod
    def fewest_samples(cls, dim: int, family: type[AbstractGaussians]) -> int:
        """The same where samples are reused; noisier, and several times fewer evaluations."""
        return int(np.clip(6 * dim, 60, 300))

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


def finite_components(values: Float[Array, "K ..."]) -> Bool[Array, " K"]:
    """Which components have only finite values."""
    return jnp.all(jnp.isfinite(values.reshape(values.shape[0], -1)), axis=1)
