"""Mode search and chains in a result's file, to be shown again without the target."""

import dataclasses
from typing import Any

import numpy as np

from natmix.diagnostics import Exploration, MissedMode, ModeSearch
from natmix.diagnostics.verification import Repair, Verification
from natmix.estimate import Estimate
from natmix.result.diagnosing import diagnosis_by
from natmix.result.result import Result

_ESTIMATES = ("uncovered", "uncovered_by_samples", "excess")


def saved_searches(result: Result) -> dict[str, Any]:
    """Entries of the file's header: searches of the fit, or of the diagnosis if that has made them."""
    if result.verification is not None:
        return {"verification": _saved(result.verification)}
    made = result.__dict__.get("diagnosis")
    if made is None:
        return {}
    searches = (made.mode_search, made.exploration, made.not_searched, made.not_explored)
    return {"diagnosis": _saved(Verification(*searches))}


def loaded_verification(header: dict[str, Any], dim: int) -> Verification | None:
    """The searches of the fit, if it has made any."""
    saved = header.get("verification")
    return None if saved is None else _loaded(saved, dim)


def keep_diagnosis(result: Result, header: dict[str, Any]) -> None:
    """Make the diagnosis again from the saved searches alone."""
    saved = header.get("diagnosis")
    if saved is None or result.draws is None:
        return
    made = _loaded(saved, result.mixture.dim)
    searches = (made.mode_search, made.exploration, made.not_explored, made.not_searched)
    result.__dict__["diagnosis"] = diagnosis_by(result, result.draws, *searches)


def _saved(made: Verification) -> dict[str, Any]:
    out = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
    search, chains = made.mode_search, made.exploration
    if search is not None:
        missed = [
            m._asdict() | {"position": _as_list(m.position), "covariance": _as_list(m.covariance)}
            for m in search.missed
        ]
        out["mode_search"] = search._asdict() | {"missed": missed}
    if chains is not None:
        arrays = {"position": _as_list(chains.position), "points": _as_list(chains.points)}
        out["exploration"] = chains._asdict() | arrays
    return out | {"repairs": [r._asdict() for r in made.repairs]}


def _loaded(saved: dict[str, Any], dim: int) -> Verification:
    search, chains = saved["mode_search"], saved["exploration"]
    found: dict[str, Any] = {"repairs": tuple(Repair(**r) for r in saved["repairs"])}
    if search is not None:
        missed = tuple(
            MissedMode(
                **(m | {"position": _as_array(m["position"]), "covariance": _as_array(m["covariance"])})
            )
            for m in search["missed"]
        )
        found["mode_search"] = ModeSearch(**(search | {"missed": missed, "hits": tuple(search["hits"])}))
    if chains is not None:
        estimates = {name: Estimate(*chains[name]) for name in _ESTIMATES}
        points = np.array(chains["points"], float).reshape(-1, dim)
        arrays = {"position": _as_array(chains["position"]), "points": points}
        found["exploration"] = Exploration(**(chains | estimates | arrays))
    return Verification(**(saved | found))


def _as_list(array: np.ndarray | None) -> list[Any] | None:
    return None if array is None else np.asarray(array, float).tolist()


def _as_array(values: list[Any] | None) -> np.ndarray | None:
    return None if values is None else np.array(values, float)
