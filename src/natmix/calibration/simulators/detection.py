"""Which simulator the user's model needs."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from natmix.calibration.simulators.base import AbstractSimulator, Request
from natmix.calibration.simulators.functions import FunctionSimulator
from natmix.calibration.simulators.numpyro import NumpyroSimulator
from natmix.calibration.simulators.pymc import PymcSimulator
from natmix.models import front_ends

Simulator = TypeVar("Simulator", bound=type[AbstractSimulator])

SIMULATORS: list[type[AbstractSimulator]] = [PymcSimulator, FunctionSimulator, NumpyroSimulator]
"""Asked in this order; the last one takes any function."""


def register(simulator: Simulator) -> Simulator:
    """Ask this simulator before the others; also as a decorator of the class."""
    if simulator not in SIMULATORS:
        SIMULATORS.insert(0, simulator)
    return simulator


def as_simulator(
    model: Any,
    model_args: tuple[Any, ...] | None,
    model_kwargs: dict[str, Any] | None,
    observed: Sequence[str] | None,
    simulate: Callable[..., Any] | None,
    bounds: Any,
) -> AbstractSimulator:
    """For a PyMC model, for functions if there is ``simulate``, otherwise for a NumPyro model."""
    if isinstance(observed, str):
        raise ValueError(f"observed holds names, as in observed=[{observed!r}].")
    request = Request(model, model_args, model_kwargs, observed, simulate, bounds)
    if isinstance(model, AbstractSimulator):
        request.leave_out_all("A simulator")
        return model
    front_ends()  # packages that bring a front end may register a simulator beside it
    for simulator in SIMULATORS:
        if simulator.recognises(request):
            return simulator.from_request(request)
    raise ValueError(
        f"Give a NumPyro or PyMC model, or a log density with simulate=, got {type(model).__name__}."
    )
