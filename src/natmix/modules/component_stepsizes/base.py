"""The contract of a component stepsize schedule."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, Int

from natmix.array_types import PyTree
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import Option


class Rewards(eqx.Module):
    """The reward last recorded for each component, and how many have been recorded.

    r(o) = T log q(o) + E[R] under q(x|o), recorded before the weights change.
    """

    last: Float[Array, " *K"]
    records: Int[Array, " *K"]


class AbstractComponentStepsize(Option):
    """Chooses a stepsize for every component."""

    @abc.abstractmethod
    def init(self, mixture: Mixture) -> PyTree:
        """The state before the first iteration."""

    @abc.abstractmethod
    def update(
        self, state: PyTree, rewards: Rewards, updates: Int[Array, " K"]
    ) -> tuple[PyTree, Float[Array, " K"]]:
        """The stepsizes of this iteration, given how many updates each component has received so far."""
