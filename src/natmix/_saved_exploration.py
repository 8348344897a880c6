"""What chains have found, in the file of a result: the target need not be there to show it again."""

from typing import Any

import numpy as np

from natmix._estimate import Estimate
from natmix._result import Result


def saved_exploration(result: Result) -> dict[str, Any] | None:
    """Of the verdict, if it has been asked for."""
    made = result.__dict__.get("diagnosis")
    if made is None or made.exploration is None:
        return None
    found = made.exploration._asdict()
    estimates = {name: tuple(found[name]) for name in ("lacking", "known", "drift")}
    position = None if found["position"] is None else [float(v) for v in found["position"]]
    return found | estimates | {"position": position}


def keep_exploration(result: Result, found: dict[str, Any] | None) -> None:
    """The verdict with what was saved, instead of other chains."""
    from natmix.diagnostics import Exploration, diagnose

    if found is None or result.draws is None:
        return
    estimates = {name: Estimate(*found[name]) for name in ("lacking", "known", "drift")}
    position = None if found["position"] is None else np.array(found["position"], float)
    exploration = Exploration(**(found | estimates | {"position": position}))
    result.__dict__["diagnosis"] = diagnose(result.mixture, result.draws, None, exploration, result.stopped)
