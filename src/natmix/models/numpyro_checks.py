"""Checks of a NumPyro model, its arguments and its data, before anything is computed."""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from natmix.text.suggestions import meant


def checked_arguments(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a model, checked: an array instead of a tuple would be split along its first axis."""
    if not isinstance(args, (tuple, list)):
        raise ValueError(f"model_args must be a tuple, as in model_args=(x, y), got {type(args).__name__}.")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ValueError(f"model_kwargs must be a dictionary by name, got {type(kwargs).__name__}.")
    return tuple(args), dict(kwargs or {})


def misfit(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[inspect.Signature, TypeError] | None:
    """Why a model does not accept these arguments; None if it does, or if its signature is not known."""
    try:
        signature = inspect.signature(model)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return signature, error
    return None


def check_call(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if the model does not take these arguments."""
    found = misfit(model, args, kwargs)
    if found is not None:
        signature, error = found
        unknown = [name for name in kwargs if name not in signature.parameters]
        raise ValueError(
            f"The NumPyro model is model{signature}, and model_args and model_kwargs do not fit it: "
            f"{error}.{meant(unknown[0], signature.parameters) if unknown else ''}"
        )


def is_numpyro_model(fn: Any) -> bool:
    """Whether a function calls something named ``sample``, and NumPyro is there."""
    code = getattr(inspect.unwrap(fn) if callable(fn) else fn, "__code__", None)
    return "numpyro" in sys.modules and code is not None and "sample" in code.co_names


def call_error(error: Exception) -> ValueError:
    """What a model raised when it was called, with the variable if it came from one."""
    site = _site(error)
    where = f" at its variable {site!r}" if site else ""
    lines = str(error).strip().splitlines()
    return ValueError(
        f"The NumPyro model cannot be called with its arguments: it raised {type(error).__name__}{where}: "
        f"{lines[0] if lines else ''}"
    )


def check_shapes(sites: Mapping[str, Any]) -> None:
    """Raise if data do not fit their distribution."""
    for name, site in sites.items():
        if not site["is_observed"]:
            continue
        have, want = np.shape(site["value"]), tuple(site["fn"].shape())
        try:
            np.broadcast_shapes(have, want)
        except ValueError:
            raise ValueError(
                f"The data {name!r} have the shape {list(have)}, but the model's distribution of them "
                f"{list(want)}: are all arguments of the same length?"
            ) from None


def _site(error: Exception) -> str | None:
    """The variable whose `numpyro.sample` raised the error."""
    place, found = error.__traceback__, None
    while place is not None:
        frame = place.tb_frame
        if frame.f_code.co_name == "sample" and frame.f_globals.get("__name__") == "numpyro.primitives":
            found = frame.f_locals.get("name")
        place = place.tb_next
    return found
