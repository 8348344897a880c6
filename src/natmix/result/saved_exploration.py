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
        arrays = {n: _as_list(found[n]) for n in ("position", "points")}
        out["exploration"] = found | {n: tuple(found[n]) for n in _ESTIMATES} | arrays
    if made.mode_search is not None:
        modes = made.mode_search.missed
        missed = [m._asdict() | {n: _as_list(getattr(m, n)) for n in _ARRAYS} for m in modes]
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
        points = np.array(found["points"], float).reshape(-1, result.mixture.dim)
        arrays = {"position": _as_array(found["position"]), "points": points}
        exploration = Exploration(**(found | estimates | arrays))
    if searched is not None:
        missed = (MissedMode(**(m | {n: _as_array(m[n]) for n in _ARRAYS})) for m in searched["missed"])
        whole = {"missed": tuple(missed), "hits": tuple(searched["hits"])}
        mode_search = ModeSearch(**(searched | whole))
    why = header.get("not_explored", ""), header.get("not_searched", "")
    result.__dict__["diagnosis"] = diagnosis_by(result, result.draws, mode_search, exploration, *why)


def _as_list(array: np.ndarray | None) -> list[Any] | None:
    return None if array is None else np.asarray(array, float).tolist()


def _as_array(values: list[Any] | None) -> np.ndarray | None:
    return None if values is None else np.array(values, float)
