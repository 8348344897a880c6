"""The contract of a weight stepsize schedule."""

import abc

from natmix.array_types import Count, PyTree, Scalar
from natmix.mixture import Mixture
from natmix.modules.hyperparameters import Option


class AbstractWeightStepsize(Option):
    """Chooses the stepsize of the next weight update."""

    @abc.abstractmethod
    def init(self, mixture: Mixture) -> PyTree:
        """The state before the first iteration."""

    @abc.abstractmethod
    def update(self, state: PyTree, objective: Scalar, updates: Count) -> tuple[PyTree, Scalar]:
        """The stepsize of this iteration.

        Args:
            state: as returned last time.
            objective: sum_o q(o) r(o) - T sum_o q(o) log q(o) with the current weights and the rewards
                last recorded; meaningless before the first weight update.
            updates: how many weight updates there have been.
        """
