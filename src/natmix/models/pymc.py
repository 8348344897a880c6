"""A PyMC model: its free variables transformed to the real line, its deterministics."""

from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.models.base import AbstractModel, Points, PriorRegion, by_name, prior_remark
from natmix.models.given import Given
from natmix.models.holders import has_class, holds_pymc_model, pymc_model
from natmix.models.prediction_pymc import predictions
from natmix.text.extras import needs
from natmix.text.suggestions import meant


class PymcModel(AbstractModel):
    """The posterior of a `pymc.Model`, evaluated in JAX.

    PyMC switches JAX to double precision when it compiles for it.

    Args:
        model: with its data observed; or a `bambi.Model`, whose PyMC model is taken.
    """

    @classmethod
    def recognises(cls, given: Given) -> bool:
        """A `pymc.Model` or a `bambi.Model`, without importing PyMC to find out."""
        return has_class(given.target, "pymc", "Model") or holds_pymc_model(given.target)

    @classmethod
    def from_given(cls, given: Given) -> Self:
        """The model has its data."""
        given.leave_out_all("Bambi model" if holds_pymc_model(given.target) else "PyMC model")
        return cls(given.target)

    @staticmethod
    def with_data(model: Any, data: Mapping[str, Any]) -> Any:
        """A copy of a `pymc.Model` with other values of its ``pymc.Data``."""
        _pymc_jax()
        import pymc
        from pymc.model.fgraph import clone_model

        known = [v.name for v in model.data_vars]
        for name in data:
            if name not in known:
                raise ValueError(
                    f"A data set names {name!r}, but the model's pymc.Data are {', '.join(known) or 'none'}."
                    f"{meant(name, known)}"
                )
        copy = clone_model(model)
        for kind in ("free_RVs", "observed_RVs", "deterministics", "potentials"):
            order = [v.name for v in getattr(model, kind)]  # the copy has another one
            getattr(copy, kind).sort(key=lambda v, order=order: order.index(v.name))
        with copy:
            pymc.set_data(dict(data))
        return copy

    def __init__(self, model: Any) -> None:
        _pymc_jax()
        model = pymc_model(model)
        if not model.free_RVs:
            raise ValueError("The model has no latent variable: there is nothing to infer.")
        if model.discrete_value_vars:
            raise ValueError(
                f"The model's variable {model.discrete_value_vars[0].name!r} is discrete, which a Gaussian "
                "mixture cannot represent: sum it out, as with pymc.Mixture or pymc_extras.marginalize."
            )
        self._model = model
        first = model.initial_point()
        self._inputs = [v.name for v in model.value_vars]
        values = [jnp.asarray(first[name], jnp.result_type(float)) for name in self._inputs]
        flat, self._unravel = ravel_pytree(values)
        self._log_density = _jaxified(model.value_vars, [model.logp()])
        outputs = [v for v in model.unobserved_value_vars if not v.name.endswith("__")]
        self._outputs = [v.name for v in outputs]
        self.latent = tuple(rv.name for rv in model.free_RVs)
        self.variables = tuple(self._outputs)
        self._named = _jaxified(model.value_vars, outputs)
        self._centre, self._dtype = np.asarray(flat, float), flat.dtype
        self.dim = int(flat.size)
        self.observed = {
            rv.name: value
            for rv in model.observed_RVs
            if (value := _value(model.rvs_to_values[rv])) is not None
        }
        self._check_data()
        if not model.observed_RVs and not model.potentials:
            self.remark = prior_remark(self.latent)
        self.constant = _constant(model)
        named = {
            name: model.named_vars_to_dims.get(name)
            for name in (*self._outputs, *self.observed, *self.constant)
        }
        self.dims = {
            name: tuple(d or f"{name}_dim_{i}" for i, d in enumerate(axes))
            for name, axes in named.items()
            if axes
        }
        used = {axis for axes in self.dims.values() for axis in axes}
        self.coords = {d: np.asarray(v) for d, v in model.coords.items() if d in used and v is not None}
        self.coordinates = tuple(
            c for name, v in zip(self._inputs, values, strict=True) for c in self.labels(name, v.shape)
        )

    def _check_data(self) -> None:
        """Raise if data that are not finite leave no density at PyMC's initial point."""
        for name, value in self.observed.items():
            if np.all(np.isfinite(np.asarray(value, float))):
                continue
            if not np.isfinite(float(self.log_density(jnp.asarray(self._centre)))):
                raise ValueError(
                    f"The model has no finite log density: the data {name!r} hold NaN or infinity."
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return PymcModel, (self._model,)

    def _one(self, x: Float[Array, " D"]) -> list[Array]:
        return self._unravel(x.astype(self._dtype))

    def log_density(self, x: Float[Array, " D"]) -> Scalar:
        return jnp.asarray(self._log_density(*self._one(x))[0])

    def free(self, x: Points) -> dict[str, np.ndarray]:
        """Free variables, transformed to the real line, under PyMC's names for these (``tau_log__``)."""
        values = jax.vmap(lambda row: tuple(self._one(row)))(jnp.asarray(x))
        return dict(zip(self._inputs, map(np.asarray, values), strict=True))

    def constrain(self, x: Points) -> dict[str, np.ndarray]:
        """Free variables and deterministics under the model's names."""
        values = jax.vmap(lambda row: tuple(self._named(*self._one(row))))(jnp.asarray(x))
        return dict(zip(self._outputs, map(np.asarray, values), strict=True))

    def unconstrain(self, values: dict[str, Any]) -> Points:
        """Unconstrained vectors of free variables by name; others are ignored."""
        free = list(self._model.free_RVs)
        found = by_name(values, [rv.name for rv in free])
        transforms = [self._model.rvs_to_transforms[rv] for rv in free]
        outputs = [
            rv if t is None else t.forward(rv, *rv.owner.inputs)
            for rv, t in zip(free, transforms, strict=True)
        ]
        from pytensor.graph.replace import clone_replace

        # Plain inputs instead of the random variables, which would include their generators.
        inputs = [rv.type(rv.name) for rv in free]
        outputs = clone_replace(outputs, dict(zip(free, inputs, strict=True)))
        forward = _jaxified(inputs, outputs)
        by_value = {self._model.rvs_to_values[rv].name: i for i, rv in enumerate(free)}

        def vector(*named: Array) -> Float[Array, " D"]:
            outputs = forward(*named)
            return ravel_pytree([outputs[by_value[name]] for name in self._inputs])[0]

        return jax.vmap(vector)(*[jnp.asarray(found[rv.name], self._dtype) for rv in free])

    def start(self, key: PRNGKey) -> PriorRegion | None:
        """Around PyMC's initial point, with standard deviation 1 in transformed coordinates."""
        return PriorRegion(self._centre, np.ones(self.dim))

    def predict(
        self, seed: int, samples: dict[str, np.ndarray], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, np.ndarray]:
        """Posterior predictive samples of the observed variables; `pymc.set_data` sets new inputs."""
        if args or kwargs:
            raise ValueError("A PyMC model takes no arguments: set new data in it with pymc.set_data.")
        return predictions(self._model, seed, samples)

    def log_likelihood(self, x: Points) -> dict[str, np.ndarray]:
        """The log likelihood of each observation, samples first."""
        observed = list(self._model.observed_RVs)
        if not observed:
            raise ValueError("The model observes nothing, so there is no likelihood.")
        terms = self._model.logp(observed, sum=False)
        each = _jaxified(self._model.value_vars, terms)
        values = jax.vmap(lambda row: tuple(each(*self._one(row))))(jnp.asarray(x))
        return {rv.name: np.asarray(value) for rv, value in zip(observed, values, strict=True)}


def _constant(model: Any) -> dict[str, np.ndarray]:
    """The contents of `pymc.Data`, without observations."""
    observed = {id(model.rvs_to_values[rv]) for rv in model.observed_RVs}
    found = {v.name: _value(v) for v in model.data_vars if id(v) not in observed}
    return {name: value for name, value in found.items() if value is not None}


def _value(place: Any) -> np.ndarray | None:
    """Data given as numbers or as `pymc.Data`; None if they are computed from something else."""
    if hasattr(place, "get_value"):
        return np.asarray(place.get_value())
    return np.asarray(place.data) if hasattr(place, "data") else None


def _pymc_jax() -> Any:
    with needs("PyMC", "pymc", "A PyMC model"):
        import pymc.sampling.jax as graph
    return graph


def _jaxified(inputs: Any, outputs: Any) -> Any:
    """PyMC's graph as a function in JAX."""
    try:
        return _pymc_jax().get_jaxified_graph(inputs=inputs, outputs=outputs)
    except NotImplementedError as error:
        raise ValueError(f"PyMC cannot express the model in JAX: {error}") from error
