"""Simulations by the user's own functions."""

from collections.abc import Callable, Iterator
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.calibration.simulators.base import AbstractSimulator, Request, Simulated, SimulatedModel
from natmix.models.base import around
from natmix.models.pytree import PytreeModel


class FunctionSimulator(AbstractSimulator):
    """A model given by a log density and a function that simulates.

    Args:
        log_density: of (parameters, data): log prior plus log likelihood.
        simulate: from a key to (parameters, data), pytrees of arrays, drawn from prior and model.
        bounds: of the parameters, as `natmix.fit` takes them.
    """

    @classmethod
    def recognises(cls, request: Request) -> bool:
        return request.simulate is not None

    @classmethod
    def from_request(cls, request: Request) -> Self:
        request.leave_out("A log density with simulate=", "model_args", "model_kwargs", "observed")
        assert request.simulate is not None
        return cls(request.model, request.simulate, request.bounds)

    def __init__(
        self,
        log_density: Callable[[Any, Any], Any],
        simulate: Callable[[PRNGKey], tuple[Any, Any]],
        bounds: Any = None,
    ) -> None:
        if not callable(log_density) or not callable(simulate):
            raise ValueError(
                "Give two functions: log_density(parameters, data), and simulate(key) that returns "
                "(parameters, data)."
            )
        self._log_density, self._simulate, self._bounds = log_density, simulate, bounds

    def simulations(self, key: PRNGKey, number: int) -> Iterator[Simulated]:
        drawn = [self._drawn(one) for one in jax.random.split(key, number)]
        truths = [truth for truth, _ in drawn]
        like, joint = self._first(truths[0])
        together = jax.tree.map(lambda *leaves: np.stack([np.asarray(a, float) for a in leaves]), *truths)
        region = around(np.asarray(like.unconstrain(together), float))
        for truth, data in drawn:
            yield Simulated(jax.tree.map(np.asarray, truth), SimulatedModel(joint, data, like, region))

    def _drawn(self, key: PRNGKey) -> tuple[Any, Any]:
        out = self._simulate(key)
        if not isinstance(out, tuple) or len(out) != 2:
            raise ValueError("simulate(key) must return a pair (parameters, data).")
        return out

    def _first(self, truth: Any) -> tuple[PytreeModel, Callable[[Any, Float[Array, " D"]], Scalar]]:
        """The model's shape from the first parameters, and its log density for any data."""
        position = jax.tree.map(lambda a: np.asarray(a, float), truth)
        like = PytreeModel(lambda parameters: 0.0, position, self._bounds)

        def joint(data: Any, x: Float[Array, " D"]) -> Scalar:
            return self._log_density(like.position(x), data) + like.log_density(x)

        return like, joint
