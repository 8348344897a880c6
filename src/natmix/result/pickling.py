"""Whether the code that a result refers to can be pickled."""

import pickle
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from natmix.result.result import Result

_BY_VALUE = ("cloudpickle", "dill")
"""Libraries that pickle lambdas and local functions too."""


def check_code(result: "Result") -> None:
    """Raise if the standard library cannot pickle the target or the model."""
    if _called_by(_BY_VALUE):
        return
    try:
        pickle.dumps((result.target, result.model))
    except Exception as error:
        raise pickle.PicklingError(
            f"The result's target cannot be pickled ({type(error).__name__}: {error}): define it by `def` at "
            "the top of a module, pickle with cloudpickle, or use result.save(path), which leaves it out."
        ) from error


def _called_by(packages: tuple[str, ...]) -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).split(".")[0] in packages:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
