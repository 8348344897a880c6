"""What climbs and chains have found, in the file of a result: shown again without the target."""

from typing import Any

import numpy as np

from natmix.estimate import Estimate
from natmix.result.result import Result

_ESTIMATES = ("lacking", "known", "drift")


def saved_exploration(result: Result) -> dict[str, Any]:
    """Of the verdict, if it has been asked for, by entries of the file's header."""
    made = result.__dict__.get("diagnosis")
    if made is None:
        return {}
    out: dict[str, Any] = {"unexplored": made.unexplored, "unsearched": made.unsearched}
    if made.exploration is not None:
        found = made.exploration._asdict()
        position = None if found["position"] is None else [float(v) for v in found["position"]]
        out["exploration"] = found | {n: tuple(found[n]) for n in _ESTIMATES} | {"position": position}
    if made.hunt is not None:
        missed = [m._asdict() | {"position": [float(v) for v in m.position]} for m in made.hunt.missed]
        out["hunt"] = made.hunt._asdict() | {"missed": missed}
    return out


def keep_exploration(result: Result, header: dict[str, Any]) -> None:
    """The verdict with what was saved, instead of other climbs and chains."""
    from natmix.diagnostics import Exploration, Hunt, MissedMode, diagnose

    found, hunted = header.get("exploration"), header.get("hunt")
    if (found is None and hunted is None) or result.draws is None:
        return
    exploration, hunt = None, None
    if found is not None:
        estimates = {name: Estimate(*found[name]) for name in _ESTIMATES}
        position = None if found["position"] is None else np.array(found["position"], float)
        exploration = Exploration(**(found | estimates | {"position": position}))
    if hunted is not None:
        missed = (MissedMode(**(m | {"position": np.array(m["position"], float)})) for m in hunted["missed"])
        hunt = Hunt(**(hunted | {"missed": tuple(missed)}))
    why = header.get("unexplored", ""), header.get("unsearched", "")
    result.__dict__["diagnosis"] = diagnose(
        result.mixture, result.draws, hunt, exploration, result.stopped, *why
    )
