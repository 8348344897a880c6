"""Mode search and chains of a diagnosis in a result's file, to be shown again without the target."""

from typing import Any

import numpy as np

from natmix.diagnostics import Exploration, MissedMode, ModeSearch
from natmix.estimate import Estimate
from natmix.result.diagnosing import diagnosis_by
from natmix.result.result import Result

_ESTIMATES = ("uncovered", "uncovered_by_samples", "excess")
_ARRAYS = ("position", "covariance")
"""Of a missed mode."""


def saved_exploration(result: Result) -> dict[str, Any]:
    """Entries of the file's header, if the diagnosis has been made."""
    made = result.__dict__.get("diagnosis")
    if made is None:
        return {}
    out: dict[str, Any] = {"not_explored": made.not_explored, "not_searched": made.not_searched}
    if made.exploration is not None:
        found = made.exploration._asdict()
        position = None if found["position"] is None else [float(v) for v in found["position"]]
        out["exploration"] = found | {n: tuple(found[n]) for n in _ESTIMATES} | {"position": position}
    if made.mode_search is not None:
        missed = [
            m._asdict() | {n: _numbers(getattr(m, n)) for n in _ARRAYS} for m in made.mode_search.missed
        ]
        out["mode_search"] = made.mode_search._asdict() | {"missed": missed}
    return out


def keep_exploration(result: Result, header: dict[str, Any]) -> None:
    """Make the diagnosis from what was saved, without another mode search or other chains."""
    found, searched = header.get("exploration"), header.get("mode_search")
    if (found is None and searched is None) or result.draws is None:
        return
    exploration, mode_search = None, None
    if found is not None:
        estimates = {name: Estimate(*found[name]) for name in _ESTIMATES}
        position = None if found["position"] is None else np.array(found["position"], float)
        exploration = Exploration(**(found | estimates | {"position": position}))
    if searched is not None:
        missed = tuple(MissedMode(**(m | {n: _array(m.get(n)) for n in _ARRAYS})) for m in searched["missed"])
        mode_search = ModeSearch(**(searched | {"missed": missed, "hits": tuple(searched.get("hits", ()))}))
    why = header.get("not_explored", ""), header.get("not_searched", "")
    result.__dict__["diagnosis"] = diagnosis_by(result, result.draws, mode_search, exploration, *why)


def _numbers(array: np.ndarray | None) -> Any:
    return None if array is None else np.asarray(array, float).tolist()


def _array(numbers: Any) -> np.ndarray | None:
    return None if numbers is None else np.array(numbers, float)
