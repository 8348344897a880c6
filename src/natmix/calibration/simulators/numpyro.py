"""Simulations of a NumPyro model."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.calibration.simulators.base import AbstractSimulator, Request, Simulated, SimulatedModel
from natmix.models.numpyro import NumpyroModel, _numpyro
from natmix.models.numpyro_checks import checked_arguments


class NumpyroSimulator(AbstractSimulator):
    """Parameters from the prior of a NumPyro model, data in the places of its observed variables.

    Args:
        model: a function with `numpyro.sample` statements.
        args: its arguments, the data among them (their values do not matter).
        kwargs: its keyword arguments.
        observed: names of the variables that are data; those that the model observes if left out.
    """

    @classmethod
    def recognises(cls, request: Request) -> bool:
        return callable(request.model)

    @classmethod
    def from_request(cls, request: Request) -> Self:
        request.leave_out("A NumPyro model, which knows its variables,", "bounds")
        args = () if request.model_args is None else request.model_args
        return cls(request.model, args, request.model_kwargs, request.observed)

    def __init__(
        self,
        model: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        observed: Sequence[str] | None = None,
    ) -> None:
        numpyro = _numpyro()
        self._args, self._kwargs = checked_arguments(args, kwargs)
        if observed is None:
            observed = tuple(NumpyroModel(model, self._args, self._kwargs).observed)
        if not observed:
            raise ValueError(
                "The model has no observed variable: give it data as for a fit, or name the variables that "
                "are data, as in observed=['y']."
            )
        names = tuple(observed)

        def with_data(data: dict[str, Array] | None) -> Callable[..., Any]:
            return _data_handler(numpyro)(model, names, data)

        def draw(key: PRNGKey) -> tuple[dict[str, Array], dict[str, Array]]:
            seeded = numpyro.handlers.seed(with_data(None), key)
            trace = numpyro.handlers.trace(seeded).get_trace(*self._args, **self._kwargs)
            _check(names, trace, numpyro)
            sites = {name: s for name, s in trace.items() if s["type"] in ("sample", "deterministic")}
            data = {name: jnp.asarray(sites.pop(name)["value"]) for name in names}
            return {n: s["value"] for n, s in sites.items() if not s.get("is_observed")}, data

        self._draw = jax.jit(draw)
        key = jax.random.key(0)
        try:
            _, first = self._draw(key)
        except NotImplementedError:
            raise ValueError("The prior is improper: no parameters can be drawn from it.") from None
        self._like = NumpyroModel(with_data(first), self._args, self._kwargs)
        self._region = self._like.start(key)

        def joint(data: dict[str, Array], x: Float[Array, " D"]) -> Scalar:
            params = self._like._one(x)
            return -numpyro.infer.util.potential_energy(with_data(data), self._args, self._kwargs, params)

        def constrain(data: dict[str, Array], x: Float[Array, " D"]) -> dict[str, Array]:
            where = (with_data(data), self._args, self._kwargs, self._like._one(x))
            values = numpyro.infer.util.constrain_fn(*where, return_deterministic=True)
            return {name: value for name, value in values.items() if name not in names}

        self._joint = joint
        many = jax.jit(jax.vmap(constrain, in_axes=(None, 0)))
        self._constrain = lambda data, x: jax.tree.map(np.asarray, many(data, jnp.asarray(x)))

    def simulations(self, key: PRNGKey, number: int) -> Iterator[Simulated]:
        for one in jax.random.split(key, number):
            truth, data = self._draw(one)
            model = SimulatedModel(self._joint, data, self._like, self._region, self._constrain)
            yield Simulated(truth, model)


def _check(names: tuple[str, ...], trace: dict[str, Any], numpyro: Any) -> None:
    for name in names:
        if name not in trace:
            raise ValueError(f"The model has no variable {name!r} to be observed.")
    for name, site in trace.items():
        if site["type"] == "sample" and isinstance(site["fn"], numpyro.distributions.Unit):
            raise ValueError(
                f"The model has a factor {name!r}, which cannot be simulated: it is not known which data it "
                "represents. Write it as an observed variable, or give simulate=."
            )


def _data_handler(numpyro: Any) -> Any:
    class ObservedData(numpyro.primitives.Messenger):  # type: ignore[misc]
        """Draws the variables of these names, or sets them to given data."""

        def __init__(
            self, fn: Callable[..., Any], names: tuple[str, ...], data: dict[str, Array] | None
        ) -> None:
            self.names, self.data = names, data
            super().__init__(fn)

        def process_message(self, message: dict[str, Any]) -> None:
            name = message.get("name")
            if message["type"] == "sample" and name in self.names:
                message["value"] = None if self.data is None else self.data[name]
                message["is_observed"] = self.data is not None

    return ObservedData
