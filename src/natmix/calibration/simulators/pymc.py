"""Simulations of a PyMC model."""

import warnings
from collections.abc import Iterator
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.calibration.simulators.base import AbstractSimulator, Request, Simulated, SimulatedModel
from natmix.models import Given
from natmix.models.pymc import PymcModel, _pymc_jax


class PymcSimulator(AbstractSimulator):
    """Parameters from the prior of a PyMC model, data in the places of its observed variables.

    Args:
        model: with data observed (their values do not matter).
    """

    @classmethod
    def recognises(cls, request: Request) -> bool:
        return PymcModel.recognises(Given(request.model))

    @classmethod
    def from_request(cls, request: Request) -> Self:
        request.leave_out_all("A PyMC model")
        return cls(request.model)

    def __init__(self, model: Any) -> None:
        graph = _pymc_jax()
        from pytensor.graph.replace import clone_replace

        if not model.observed_RVs:
            raise ValueError("The model has no observed variable: give its data as for a fit.")
        if model.potentials:
            raise ValueError(
                f"The model has a potential {model.potentials[0].name!r}, which cannot be simulated: it is "
                "not known which data it represents. Write it as an observed variable, or give simulate=."
            )
        self._model = model
        self._like = PymcModel(model)
        self._names = tuple(rv.name for rv in model.observed_RVs)
        places = [model.rvs_to_values[rv] for rv in model.observed_RVs]
        self._types = [place.type.dtype for place in places]
        free = [place.type(f"{name}_data") for name, place in zip(self._names, places, strict=True)]
        self._kept, outputs = _parameters(model)
        replaced = clone_replace([model.logp(), *outputs], replace=dict(zip(places, free, strict=True)))
        inputs = [*model.value_vars, *free]
        density = graph.get_jaxified_graph(inputs=inputs, outputs=replaced[:1])
        named = graph.get_jaxified_graph(inputs=inputs, outputs=replaced[1:])

        def joint(data: dict[str, Array], x: Float[Array, " D"]) -> Scalar:
            return jnp.asarray(density(*self._like._one(x), *(data[name] for name in self._names))[0])

        def constrain(data: dict[str, Array], x: Float[Array, " D"]) -> dict[str, Array]:
            found = named(*self._like._one(x), *(data[name] for name in self._names))
            return dict(zip(self._kept, found, strict=True))

        self._joint = joint
        many = jax.jit(jax.vmap(constrain, in_axes=(None, 0)))
        self._constrain = lambda data, x: jax.tree.map(np.asarray, many(data, jnp.asarray(x)))

    def simulations(self, key: PRNGKey, number: int) -> Iterator[Simulated]:
        import pymc

        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        with self._model, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = pymc.sample_prior_predictive(draws=number, random_seed=seed)
        prior, predictive = found["prior"], found["prior_predictive"]
        region = self._like.start(key)
        for i in range(number):
            truth = {name: np.asarray(prior[name])[0, i] for name in prior.data_vars}
            data = {
                name: np.asarray(predictive[name])[0, i].astype(dtype)
                for name, dtype in zip(self._names, self._types, strict=True)
            }
            kept = {name: truth[name] for name in self._kept}
            yield Simulated(kept, SimulatedModel(self._joint, data, self._like, region, self._constrain))


def _parameters(model: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Free variables and deterministics, names and graphs, without those that hold data.

    Where data have gaps, PyMC has the missing entries as a free variable and the whole as a deterministic.
    """
    observed = {rv.name for rv in model.observed_RVs}
    free = {rv.name for rv in model.free_RVs}
    kept = [
        v
        for v in model.unobserved_value_vars
        if not v.name.endswith("__")
        and not (f"{v.name}_observed" in observed and f"{v.name}_unobserved" in free)
    ]
    return tuple(v.name for v in kept), kept
