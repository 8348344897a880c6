"""The contract of a component adaptation."""

import abc
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Bool, Float

from natmix.array_types import Count, CountLike, Flag, PRNGKey, PyTree, Scalar
from natmix.mixture import Mixture
from natmix.modules.component_stepsizes.base import Rewards
from natmix.modules.hyperparameters import Option


class EvaluatedSamples(eqx.Module):
    """This iteration's new samples, as the target gave them."""

    x: Float[Array, "N D"]
    log_target: Float[Array, " N"]
    real: Bool[Array, " N"]


class Change(eqx.Module):
    """What should happen to the components."""

    delete: Bool[Array, " K"]
    add: Flag
    mean: Float[Array, " D"]
    scale: Scalar
    """The new component has covariance scale^2 I."""
    log_weight: Scalar
    gain: Scalar
    """log p~ - log q at the mean of the new component, -inf if the iteration adds none."""


class AbstractComponentAdaptation(Option):
    """Decides which components to delete and where to add one."""

    adds_components: ClassVar[bool] = False
    """Whether the number of components may grow: a fit then starts with one."""

    @classmethod
    def fit_defaults(cls, fresh_candidates: int) -> dict[str, Any]:
        """Hyperparameters that `natmix.fit` uses where the user says nothing and the option's own differ.

        Args:
            fresh_candidates: draws from the initial region that are tried as new means.
        """
        return {}

    def addition_cycle(self) -> int:
        """Iterations after which the search for new components has used each of its settings once."""
        return 0

    @abc.abstractmethod
    def init(self, mixture: Mixture, prior: Mixture) -> PyTree:
        """The state before the first iteration; the prior is one Gaussian, the initial region."""

    def fitted(self, state: PyTree) -> PyTree:
        """The state of an option with the same numbers and other bounds (`Option.masked`)."""
        return state

    def stored_samples(self, state: PyTree) -> tuple[Array, Array, Array] | None:
        """Samples of the whole run: points, log densities, and how many from the first are real."""
        return None

    @abc.abstractmethod
    def most_components(self, start: int) -> int:
        """How many components there may ever be when a run starts with ``start``."""

    @abc.abstractmethod
    def num_candidates(self) -> CountLike:
        """How many of the first `candidates` are evaluated in an iteration that adds a component."""

    @abc.abstractmethod
    def wants_to_add(self, iteration: Count, mixture: Mixture) -> Flag:
        """Whether this iteration adds a component if there is room for it."""

    @abc.abstractmethod
    def candidates(self, key: PRNGKey, prior: Mixture) -> Float[Array, "C D"]:
        """New points at which a component might be added; the target is evaluated there."""

    @abc.abstractmethod
    def adapt(
        self,
        state: PyTree,
        key: PRNGKey,
        iteration: Count,
        mixture: Mixture,
        rewards: Rewards,
        samples: EvaluatedSamples,
        candidates: EvaluatedSamples,
        prior: Mixture,
        temperature: Scalar,
    ) -> tuple[PyTree, Change]:
        """The change of this iteration."""
