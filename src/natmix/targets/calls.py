"""A call of the user's function, wherever it runs: here, in a thread, in another process."""

import pickle
import time
from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.interrupts import Interrupted
from natmix.targets.base import TargetError

_KEPT = 4
"""Functions that a process of an executor keeps."""

_HOW_TO_SEND = "define it by `def` at the top of a module, or install cloudpickle"


class Answer(NamedTuple):
    """What the function returned for some points.

    Attributes:
        values: one output per point, or one of all points if the function is batched.
        gradients: likewise, of the separate function for the gradient; None if it was not called.
        seconds: that it took.
    """

    values: Any
    gradients: Any
    seconds: float


class Raised(NamedTuple):
    """The function raised an error.

    Attributes:
        error: the error.
        given: the points that it had been given.
    """

    error: BaseException
    given: int


class Unknown(NamedTuple):
    """The process has not been sent this function yet."""


class Call:
    """The function of a target, and its gradient, at some points; it can be pickled if they can.

    Args:
        fn: takes a point [D], or points [n, D] if ``batched``.
        gradient: likewise, called if the gradient is needed.
        batched: whether both take many points.
    """

    def __init__(
        self, fn: Callable[..., Any], gradient: Callable[..., Any] | None = None, batched: bool = False
    ) -> None:
        self.fn, self.gradient, self.batched = fn, gradient, batched

    def __call__(self, points: Float[np.ndarray, "n D"], needs_gradient: bool) -> Answer | Raised:
        """The outputs, or the error that was raised; the function gets copies, which it may modify."""
        given, start = 0, time.perf_counter()
        gradient = self.gradient if needs_gradient else None
        try:
            if self.batched:
                given = len(points)
                values = self.fn(points.copy())
                slopes = None if gradient is None else gradient(points.copy())
                return Answer(values, slopes, time.perf_counter() - start)
            values, slopes = [], []
            for point in points:
                given += 1
                values.append(self.fn(point.copy()))
                if gradient is not None:
                    slopes.append(gradient(point.copy()))
            return Answer(values, slopes if gradient is not None else None, time.perf_counter() - start)
        except KeyboardInterrupt:
            raise Interrupted(given) from None
        except Exception as error:
            return Raised(error, given)


def portable(outcome: Answer | Raised) -> Answer | Raised:
    """An error that can be pickled in place of one that cannot."""
    if isinstance(outcome, Raised):
        try:
            pickle.loads(pickle.dumps(outcome.error))
        except Exception:
            text = f"{type(outcome.error).__name__}: {outcome.error}"
            return Raised(RuntimeError(text), outcome.given)
    return outcome


def pickled(call: Call) -> bytes:
    """The call for other processes; cloudpickle also takes what is defined in a notebook or by lambda."""
    pickler: Any = _cloudpickle() or pickle
    try:
        data: bytes = pickler.dumps(call, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TargetError(
            f"The target cannot be sent to another process ({type(error).__name__}: {error}): {_HOW_TO_SEND}."
        ) from error
    return data


def unpickled(data: bytes) -> Call:
    """What `pickled` made.

    Raises:
        TargetError: its module cannot be imported here.
    """
    try:
        call: Call = pickle.loads(data)
    except Exception as error:
        raise TargetError(
            f"The target could not be loaded in another process ({type(error).__name__}: {error}): "
            f"{_HOW_TO_SEND}."
        ) from None
    return call


def remote_call(
    token: str, data: bytes | None, points: Float[np.ndarray, "n D"], needs_gradient: bool
) -> Answer | Raised | Unknown:
    """Call a function that this process keeps under ``token``, or that comes with the task.

    A large function travels once to every process: a task without ``data`` is answered by `Unknown` where
    the function is not known, and comes again with them.
    """
    if token in _loaded:
        _loaded.move_to_end(token)
    elif data is None:
        return Unknown()
    else:
        try:
            _loaded[token] = unpickled(data)
        except TargetError as error:
            return Raised(error, 0)
        while len(_loaded) > _KEPT:
            _loaded.popitem(last=False)
    return portable(_loaded[token](points, needs_gradient))


_loaded: OrderedDict[str, Call] = OrderedDict()


def _cloudpickle() -> ModuleType | None:
    try:
        import cloudpickle
    except ImportError:
        return None
    module: ModuleType = cloudpickle
    return module
