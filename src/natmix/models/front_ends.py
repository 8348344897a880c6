"""The front ends that find a model in what the user gives: natmix's own, and those of other packages."""

import functools
import warnings
from importlib import metadata
from typing import Any, TypeVar

import jax

from natmix.models.base import AbstractModel
from natmix.models.given import Given
from natmix.models.numpyro import NumpyroModel
from natmix.models.pymc import PymcModel
from natmix.models.pytree import PytreeModel
from natmix.models.stan import StanModel
from natmix.targets import AbstractTarget
from natmix.targets.function_of_data import FunctionOfData

GROUP = "natmix.models"
"""Entry points of this group name classes of other packages, each a front end."""

Model = TypeVar("Model", bound=type[AbstractModel])

FRONT_ENDS: list[type[AbstractModel]] = [PymcModel, StanModel, NumpyroModel, PytreeModel]
"""Asked in this order, after those of other packages; the last two take any function with their arguments."""

_REGISTERED: list[type[AbstractModel]] = []


def register(model: Model) -> Model:
    """Ask this front end before natmix's own; also as a decorator of the class.

    Raises:
        ValueError: another front end has this name, by which files know the model.
    """
    if any(other.__name__ == model.__name__ and other is not model for other in (*_REGISTERED, *FRONT_ENDS)):
        raise ValueError(f"There is a front end {model.__name__!r} already: choose another name.")
    if model not in _REGISTERED:
        _REGISTERED.append(model)
    return model


def unregister(model: type[AbstractModel]) -> None:
    """Ask it no more."""
    _REGISTERED.remove(model)


def front_ends() -> tuple[type[AbstractModel], ...]:
    """All of them, in the order in which they are asked: registered, found by entry points, natmix's own."""
    return tuple(dict.fromkeys((*_REGISTERED, *installed(), *FRONT_ENDS)))


@functools.cache
def installed() -> tuple[type[AbstractModel], ...]:
    """Front ends of other packages, by the entry-point group ``natmix.models``; looked up once."""
    found = []
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            model = entry.load()
            if not (isinstance(model, type) and issubclass(model, AbstractModel)):
                raise TypeError(f"{entry.value} is not a class derived from natmix.models.AbstractModel")
        except Exception as error:
            warnings.warn(
                f"The model front end {entry.name!r} ({entry.value}) cannot be used: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
            continue
        found.append(model)
    return tuple(found)


def check_not_traced(given: Any) -> None:
    """Raise if a fit is made inside `jax.vmap` or `jax.jit`: it decides on the host what to do next."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(given)):
        raise ValueError(
            "natmix.fit cannot be part of jax.vmap or jax.jit: natmix.fit_many(model, datasets) fits many "
            "data sets, and compiles once."
        )


def with_data(target: Any, data: Any) -> Any:
    """The function that a target is of its data; the target itself if there are none.

    Raises:
        ValueError: the target gets its data in another way.
    """
    if data is None:
        return target
    function = callable(target) and not isinstance(target, (AbstractTarget, AbstractModel))
    if not function or PymcModel.recognises(Given(target)) or StanModel.recognises(Given(target)):
        raise ValueError(
            f"data= is for a function f(x, data), got {type(target).__name__}: a NumPyro model gets its data "
            "as model_args and model_kwargs, a Stan program as model_kwargs, and a PyMC model has them."
        )
    return FunctionOfData(target, data)


def as_model(
    target: Any,
    dim: int | None = None,
    model_args: tuple[Any, ...] | None = None,
    model_kwargs: dict[str, Any] | None = None,
    position: Any = None,
    bounds: Any = None,
) -> AbstractModel | None:
    """The model that the arguments of `fit` describe; None for a log density of plain vectors."""
    if isinstance(target, FunctionOfData) and not (model_args is None and model_kwargs is None):
        raise ValueError("Give the data as data=, for a function f(x, data), or as model_args, not both.")
    given = Given(target, dim, model_args, model_kwargs, position, bounds)
    if isinstance(target, AbstractModel):
        given.leave_out_all(type(target).__name__)
        return target
    for front_end in front_ends():
        if front_end.recognises(given):
            return front_end.from_given(given)
    return None


def front_end_named(kind: str) -> type[AbstractModel] | None:
    """The front end whose class has this name, as files keep it; None if it is not there."""
    return next((model for model in front_ends() if model.__name__ == kind), None)
