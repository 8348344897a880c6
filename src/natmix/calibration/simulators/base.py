"""The interface of a simulator."""

import abc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.models.base import AbstractModel, Points, PriorRegion
from natmix.models.pytree import leaf_name


class Simulated(NamedTuple):
    """One simulation.

    Attributes:
        truth: the parameters the data were drawn with, a pytree as `AbstractModel.constrain` gives it.
        model: the posterior given these data.
    """

    truth: Any
    model: "SimulatedModel"


class SimulatedModel(AbstractModel):
    """A posterior whose data are arguments of the program: fits to other data are not compiled again.

    Args:
        joint: the log density of (data, x), the same object for all data.
        data: a pytree of arrays.
        like: a model with the same variables, whatever its data.
        region: the initial region.
        constrain: the parameters of (data, x), if they depend on the data.
    """

    def __init__(
        self,
        joint: Callable[[Any, Float[Array, " D"]], Scalar],
        data: Any,
        like: AbstractModel,
        region: PriorRegion | None,
        constrain: Callable[[Any, Points], Any] | None = None,
    ) -> None:
        self.dim, self.coordinates = like.dim, like.coordinates
        self._data = jax.tree.map(jnp.asarray, data)
        leaves = jax.tree_util.tree_leaves_with_path(self._data)
        self.observed = {leaf_name(path) or "data": np.asarray(value) for path, value in leaves}
        self._like, self._region, self._constrain = like, region, constrain
        # A pytree, not a method: its arrays become arguments.
        self.log_density = Partial(joint, self._data)  # type: ignore[method-assign]

    def log_density(self, x: Float[Array, " D"]) -> Scalar:
        raise NotImplementedError  # replaced for every instance

    def constrain(self, x: Points) -> Any:
        return self._like.constrain(x) if self._constrain is None else self._constrain(self._data, x)

    def start(self, key: PRNGKey) -> PriorRegion | None:
        return self._region


class AbstractSimulator(abc.ABC):
    """Draws parameters and data."""

    @abc.abstractmethod
    def simulations(self, key: PRNGKey, number: int) -> Iterator[Simulated]:
        """The simulations, one after another."""
