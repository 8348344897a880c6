"""What the searches of a fit found, as plain data for files."""

import dataclasses
from typing import Any

import numpy as np

from natmix.diagnostics.verification import Verification
from natmix.files.schema import SchemaError, conform


def saved_verification(made: Verification) -> dict[str, Any]:
    """The searches of a fit as plain data."""
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


def stored_verification(saved: dict[str, Any], dim: int) -> Verification:
    """The searches from plain data, checked."""
    saved = dict(saved)
    chains = saved.get("exploration")
    if isinstance(chains, dict) and chains.get("points") == []:
        saved["exploration"] = chains | {"points": np.zeros((0, dim))}
    made: Verification = conform(Verification, saved, "searches")
    for missed in () if made.mode_search is None else made.mode_search.missed:
        covariance = missed.covariance
        if missed.position.shape != (dim,) or (covariance is not None and covariance.shape != (dim, dim)):
            raise SchemaError(f"a missed mode of the search does not lie in {dim} dimensions")
    if made.exploration is not None:
        position, points = made.exploration.position, made.exploration.points
        if points.shape[1] != dim or (position is not None and position.shape != (dim,)):
            raise SchemaError(f"the points of the chains do not lie in {dim} dimensions")
    return made


def _as_list(array: np.ndarray | None) -> list[Any] | None:
    return None if array is None else np.asarray(array, float).tolist()
