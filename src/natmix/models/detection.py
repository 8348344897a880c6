"""Detect what kind of model the user has given, if any."""

from typing import Any

import numpy as np

from natmix.models.base import AbstractModel
from natmix.models.bounds import as_side
from natmix.models.numpyro import NumpyroModel
from natmix.models.numpyro_checks import check_call, is_numpyro_model
from natmix.models.pymc import PymcModel, is_pymc_model
from natmix.models.pytree import PytreeModel
from natmix.models.stan import StanModel, is_stan_program
from natmix.targets import AbstractTarget
from natmix.targets.detection import _required


def as_model(
    target: Any,
    dim: int | None,
    model_args: tuple[Any, ...] | None,
    model_kwargs: dict[str, Any] | None,
    position: Any,
    bounds: Any,
) -> AbstractModel | None:
    """The model; None for a log density of plain vectors."""
    if isinstance(target, AbstractModel) or is_pymc_model(target):
        ppl = {"model_args": model_args, "model_kwargs": model_kwargs}
        _nothing_else(target, **ppl, position=position, bounds=bounds)
        return target if isinstance(target, AbstractModel) else PymcModel(target)
    if is_stan_program(target):
        if model_args is not None or position is not None or bounds is not None:
            raise ValueError(
                "A Stan program takes its data as model_kwargs; leave model_args, position and bounds out."
            )
        return StanModel(target, model_kwargs)
    if model_args is not None or model_kwargs is not None:
        _only(target, "model_args and model_kwargs", position=position, bounds=bounds)
        return NumpyroModel(target, () if model_args is None else model_args, model_kwargs)
    if position is not None or bounds is not None:
        if not callable(target) or isinstance(target, AbstractTarget):
            raise ValueError("With position or bounds the target must be a function of a position.")
        if position is None:
            position = _middle(dim, bounds)
        return PytreeModel(target, position, bounds)
    function = callable(target) and not isinstance(target, AbstractTarget)
    if dim is None and function and _required(target) == []:
        return NumpyroModel(target)  # a function without arguments can only be a model
    if dim is None and function and is_numpyro_model(target):
        check_call(target, (), {})
    return None


def _nothing_else(target: Any, **others: Any) -> None:
    for name, value in others.items():
        if value is not None:
            kind = "PyMC model" if is_pymc_model(target) else type(target).__name__
            raise ValueError(f"A {kind} knows its data and variables: leave {name} out.")


def _only(target: Any, what: str, **others: Any) -> None:
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{what} are for a NumPyro model, which knows its variables: leave {name} out.")
    if not callable(target):
        raise ValueError(f"{what} are for a NumPyro model, a function, got {type(target).__name__}.")


def _middle(dim: int | None, bounds: Any) -> Any:
    """A position within the bounds: a vector, or a dictionary if the bounds are by name."""
    if isinstance(bounds, dict):
        found = {name: _between(*_sides(pair, f"The bounds of {name}")) for name, pair in bounds.items()}
        numbers = sum(value.size for value in found.values())
        if dim not in (None, numbers):
            raise ValueError(
                f"dim={dim} was given, but bounds by name belong to numbers, {numbers} here: give a position "
                "with the variables' shapes, or bounds as a pair (low, high)."
            )
        return found
    low, high = _sides(bounds, "bounds")
    if low.ndim == 0:
        if dim is None:
            raise ValueError("Give dim, the number of dimensions of the target.")
        low, high = np.broadcast_to(low, dim), np.broadcast_to(high, dim)
    if dim is not None and low.shape != (dim,):
        raise ValueError(f"dim={dim} was given, but the bounds have the shape {list(low.shape)}.")
    return _between(low, high)


def _sides(pair: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        first, second = pair
        low, high = np.broadcast_arrays(as_side(first, -np.inf), as_side(second, np.inf))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a pair (low, high) of numbers or arrays, got {pair!r}.") from None
    return low, high


def _between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    both = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        middle = np.where(both, (low + high) / 2, np.where(np.isfinite(low), low + 1, high - 1))
    return np.where(np.isfinite(middle), middle, 0.0)
