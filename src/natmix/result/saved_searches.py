"""Mode search and chains in a result's file, to be shown again without the target."""

from typing import Any

from natmix.diagnostics.saved_verification import saved_verification, stored_verification
from natmix.diagnostics.verification import Verification
from natmix.result.diagnosing import diagnosis_by
from natmix.result.result import Result


def saved_searches(result: Result) -> dict[str, Any]:
    """Entries of the file's header: searches of the fit, or of the diagnosis if that has made them."""
    if result.verification is not None:
        return {"verification": saved_verification(result.verification)}
    made = result.__dict__.get("diagnosis")
    if made is None:
        return {}
    searches = (made.mode_search, made.exploration, made.not_searched, made.not_explored)
    return {"diagnosis": saved_verification(Verification(*searches))}


def loaded_verification(header: dict[str, Any], dim: int) -> Verification | None:
    """The searches of the fit, if it has made any."""
    saved = header.get("verification")
    return None if saved is None else stored_verification(saved, dim)


def keep_diagnosis(result: Result, header: dict[str, Any]) -> None:
    """Make the diagnosis again from the saved searches alone."""
    saved = header.get("diagnosis")
    if saved is None or result.draws is None:
        return
    made = stored_verification(saved, result.mixture.dim)
    searches = (made.mode_search, made.exploration, made.not_explored, made.not_searched)
    result.__dict__["diagnosis"] = diagnosis_by(result, result.draws, *searches)
