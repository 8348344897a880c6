"""Which simulator the user's model needs."""

from collections.abc import Callable, Sequence
from typing import Any

from natmix.calibration.simulators.base import AbstractSimulator
from natmix.calibration.simulators.functions import FunctionSimulator
from natmix.calibration.simulators.numpyro import NumpyroSimulator
from natmix.calibration.simulators.pymc import PymcSimulator
from natmix.models.pymc import is_pymc_model


def as_simulator(
    model: Any,
    model_args: tuple[Any, ...] | None,
    model_kwargs: dict[str, Any] | None,
    observed: Sequence[str] | None,
    simulate: Callable[..., Any] | None,
    bounds: Any,
) -> AbstractSimulator:
    """For a PyMC model, for functions if there is ``simulate``, otherwise for a NumPyro model."""
    ppl = {"model_args": model_args, "model_kwargs": model_kwargs, "observed": observed}
    if isinstance(observed, str):
        raise ValueError(f"observed holds names, as in observed=[{observed!r}].")
    if isinstance(model, AbstractSimulator) or is_pymc_model(model):
        what = "A PyMC model" if is_pymc_model(model) else "A simulator"
        _leave_out(what, **ppl, simulate=simulate, bounds=bounds)
        return model if isinstance(model, AbstractSimulator) else PymcSimulator(model)
    if simulate is not None:
        _leave_out("A log density with simulate=", **ppl)
        return FunctionSimulator(model, simulate, bounds)
    if not callable(model):
        raise ValueError(
            f"Give a NumPyro or PyMC model, or a log density with simulate=, got {type(model).__name__}."
        )
    _leave_out("A NumPyro model, which knows its variables,", bounds=bounds)
    return NumpyroSimulator(model, () if model_args is None else model_args, model_kwargs, observed)


def _leave_out(what: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{what} does not take {name}: leave it out.")
