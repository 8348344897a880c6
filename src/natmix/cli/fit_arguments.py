"""What `natmix fit` gives to `natmix.fit` for each kind of target, with its data."""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natmix.cli.user_data import data_option, parsed_option, read_data
from natmix.cli.user_target import load_object
from natmix.models import AbstractModel
from natmix.models.given import Given
from natmix.models.numpyro_checks import is_numpyro_model
from natmix.models.pymc import PymcModel
from natmix.targets import AbstractTarget
from natmix.text.suggestions import hint

_WHOLE = "data"
"""The parameter of a log density that takes all data as one dictionary."""
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class TargetArguments(NamedTuple):
    """The target, and the arguments of `natmix.fit` that belong to it."""

    target: Any
    others: dict[str, Any]


def target_arguments(
    text: str, data: Path | None, dim: int | None, position: str | None, bounds: str | None
) -> TargetArguments:
    """The target that a command names, with its data.

    Args:
        text: ``module:name``, ``file.py:name`` or a .stan file.
        data: a file.
        dim: of a log density of vectors.
        position: of a log density of a pytree, as JSON or a file.
        bounds: of either, likewise.

    Raises:
        ValueError: something is missing or does not fit, in one sentence.
    """
    found = load_object(text)
    values = None if data is None else read_data(data)
    shape: dict[str, Any] = {} if dim is None else {"dim": dim}
    if position is not None:
        shape["position"] = _real(data_option(position, "--position"))
    if bounds is not None:
        shape["bounds"] = _bounds(parsed_option(bounds, "--bounds"))
    if isinstance(found, Path):
        _leave_out(shape, "A Stan program knows its parameters")
        return TargetArguments(found, {"model_kwargs": values or {}})
    if _is_made(found):
        if values is not None:
            raise ValueError(
                f"{text} is a {_kind(found)}, which has its data: leave --data out, or name a function that "
                "takes them and returns it."
            )
        return TargetArguments(found, shape)
    if not callable(found):
        raise ValueError(
            f"{text} is of the type {_kind(found)}: name a log density, a NumPyro model, a PyMC model or a "
            "function that returns one."
        )
    name = text.rpartition(":")[2]
    return _log_density(name, found, values, shape) if shape else _of_function(name, found, values or {})


# Functions ----------------------------------------------------------------------------------------


def _of_function(name: str, function: Callable[..., Any], data: dict[str, Any]) -> TargetArguments:
    """A NumPyro model, or a function that returns a model or a target; both take the data by name."""
    if not is_numpyro_model(function):
        _check_not_a_density(name, function, data)
    check_by_name(name, function, data)
    if is_numpyro_model(function):
        return TargetArguments(function, {"model_kwargs": data})
    made, samples = _called(name, function, data)
    if samples:
        return TargetArguments(function, {"model_kwargs": data})
    if not _is_made(made):
        what = "nothing" if made is None else f"an object of the type {_kind(made)}"
        raise ValueError(
            f"{name}() returned {what} and draws no variables: "
            "it must be a NumPyro model, return a PyMC model or a target of natmix, or be a log density, "
            "which needs --dim or --position."
        )
    return TargetArguments(made, {})


def _check_not_a_density(name: str, function: Callable[..., Any], data: Mapping[str, Any]) -> None:
    """Raise if one required parameter, the first, has no data: a point, most likely."""
    required = [p.name for p in _parameters(function) if p.default is p.empty]
    if required and required[0] not in data and all(other in data for other in required[1:]):
        raise ValueError(
            f"{name}({_shown(function)}) looks like a log density of {required[0]!r}: give the length of its "
            f"vector (--dim 3) or a --position; if it is a model, the data do not have {required[0]!r}."
        )


def _called(name: str, function: Callable[..., Any], data: dict[str, Any]) -> tuple[Any, bool]:
    """What a function returns, and whether it draws variables of NumPyro's meanwhile."""
    known = "numpyro" in sys.modules
    try:
        return _drawing(function, data) if known else (function(**data), False)
    except Exception as error:
        if not known and "numpyro" in sys.modules:  # it is imported by the function
            return _called(name, function, data)
        lines = str(error).splitlines()
        raise ValueError(
            f"{name}() cannot be called with its data: it raised {type(error).__name__}: "
            f"{lines[0] if lines else ''}"
        ) from error


def _drawing(function: Callable[..., Any], data: dict[str, Any]) -> tuple[Any, bool]:
    """The same for a function that NumPyro may watch."""
    from numpyro import handlers, infer

    with (
        handlers.trace() as sites,
        handlers.substitute(substitute_fn=infer.init_to_uniform),
        handlers.seed(rng_seed=0),
    ):
        try:
            made = function(**data)
        except Exception:
            if sites:
                return None, True  # NumPyro's front end tells what is wrong
            raise
    return made, any(site["type"] == "sample" for site in sites.values())


class _TakesDataByName:
    """``fn(x, **data)`` as a function of a point and the data."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
                for name in (*_points(fn), _WHOLE)
            ]
        )

    def __call__(self, *arguments: Any) -> Any:
        *points, data = arguments
        return self.fn(*points, **data)


def _log_density(
    name: str, function: Callable[..., Any], data: dict[str, Any] | None, shape: dict[str, Any]
) -> TargetArguments:
    """A log density, whose data are its other parameters by name or one called ``data``."""
    known = [p.name for p in _parameters(function)[len(_points(function)) :]]
    if known == [_WHOLE] and data is not None and _WHOLE not in data:
        return TargetArguments(function, {**shape, "data": data})
    check_by_name(name, function, data or {}, len(_points(function)))
    if not data:
        return TargetArguments(function, shape)
    return TargetArguments(_TakesDataByName(function), {**shape, "data": data})


def check_by_name(name: str, function: Callable[..., Any], data: Mapping[str, Any], points: int = 0) -> None:
    """Raise, with all names, if a function does not take these data as keyword arguments.

    Args:
        name: of the function.
        function: to be called.
        data: by name.
        points: the number of parameters before the data.
    """
    parameters = _signature(function)
    if parameters is None:
        return
    parameters = parameters[points:]
    known = [p.name for p in parameters if p.kind in _BY_NAME]
    anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    missing = [
        p.name for p in parameters if p.kind in _BY_NAME and p.default is p.empty and p.name not in data
    ]
    unknown = [] if anything else [key for key in data if key not in known]
    if not (missing or unknown):
        return
    lacks = f"the data do not have {_listed(missing)}" if missing else ""
    extra = f"it does not take {_listed(unknown)}" if unknown else ""
    meant = f" {hint(unknown[0], missing or known)}" if unknown and known else ""
    both = " and ".join(part for part in (lacks, extra) if part)
    raise ValueError(f"{name}({_shown(function)}) and its data do not fit: {both}.{meant}")


def _signature(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _points(function: Callable[..., Any]) -> list[str]:
    """The parameters of a log density before its data: the point, after a random key if there is one."""
    names = [p.name for p in _signature(function) or []]
    return names[: 2 if names[:1] == ["key"] else 1]


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Those that have names."""
    return [p for p in _signature(function) or [] if p.kind in _BY_NAME]


def _shown(function: Callable[..., Any]) -> str:
    empty = inspect.Parameter.empty
    return ", ".join(str(p.replace(annotation=empty)) for p in _signature(function) or [])


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)


# What was found -----------------------------------------------------------------------------------


def _is_made(found: Any) -> bool:
    """Whether it is a model or a target already."""
    return isinstance(found, (AbstractModel, AbstractTarget)) or PymcModel.recognises(Given(found))


def _kind(found: Any) -> str:
    return "PyMC model" if PymcModel.recognises(Given(found)) else type(found).__name__


def _leave_out(shape: Mapping[str, Any], why: str) -> None:
    for name in shape:
        raise ValueError(f"{why}: leave --{name} out.")


def _real(value: Any) -> Any:
    """Numbers of a position as real ones: 0 in JSON stands for 0.0."""
    if isinstance(value, Mapping):
        return {name: _real(entry) for name, entry in value.items()}
    if isinstance(value, (list, np.ndarray)) or (isinstance(value, int) and not isinstance(value, bool)):
        return np.asarray(value, float)[()]
    return value


def _bounds(value: Any) -> Any:
    """(low, high), null for no bound, also by name."""
    if isinstance(value, dict):
        return {name: _bounds(entry) for name, entry in value.items()}
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"--bounds takes [low, high], null for no bound, also by name, got {value!r}.")
    return tuple(value)
