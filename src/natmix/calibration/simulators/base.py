"""The interface of a simulator."""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.models.base import AbstractModel, Points, PriorRegion
from natmix.models.structure import leaf_name


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


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of `simulation_check` that describe a model; None where one was left out."""

    model: Any
    model_args: tuple[Any, ...] | None = None
    model_kwargs: dict[str, Any] | None = None
    observed: Sequence[str] | None = None
    simulate: Callable[..., Any] | None = None
    bounds: Any = None

    def leave_out(self, what: str, *names: str) -> None:
        """Raise if one of these arguments was given."""
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(f"{what} does not take {name}: leave it out.")

    def leave_out_all(self, what: str) -> None:
        """Raise if anything besides the model was given."""
        self.leave_out(what, "model_args", "model_kwargs", "observed", "simulate", "bounds")


class AbstractSimulator(abc.ABC):
    """Draws parameters and data.

    `recognises` and `from_request` tell how `simulation_check` gets it from what the user gives.
    """

    @classmethod
    def recognises(cls, request: Request) -> bool:
        """Whether the model is one that this simulator draws from."""
        return False

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """The simulator for a model that `recognises` accepts."""
        raise NotImplementedError(f"{cls.__name__} recognises no model.")

    @abc.abstractmethod
    def simulations(self, key: PRNGKey, number: int) -> Iterator[Simulated]:
        """The simulations, one after another."""
