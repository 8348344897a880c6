"""Rows and objects of numbers in a seed's folder: evaluations of the ELBO, final numbers, a failure."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from natmix.experiments.runs.config import LimitsEntry
from natmix.files.json_text import with_nan
from natmix.files.schema import SchemaError, conform
from natmix.files.seal import EVALUATIONS, FAILURE, FINAL, DamagedFileError
from natmix.files.sealed_json import read_rows, read_sealed_json


class ElboRow(TypedDict):
    """An evaluation of the ELBO, as `natmix.experiments.runs.elbo_evaluation` writes it."""

    seconds: float
    compile_seconds: float
    iterations: int
    evaluations: int
    components: int
    neg_elbo: float
    neg_elbo_se: float
    zero_share: float
    invalid_share: float


class Failure(TypedDict):
    """Why a seed could not go on, and how far it came."""

    error: str
    iterations: int
    evaluations: int
    seconds: float


class FinalNumbers(TypedDict):
    """What every seed has at its end; the metrics of its problem come in addition."""

    neg_elbo: float
    neg_elbo_se: float
    zero_share: float
    invalid_share: float
    iterations: int
    evaluations: int
    seconds: float
    compile_seconds: float
    seeds_together: int
    components: int
    left_out: int
    stopped: str
    limits: LimitsEntry
    device: str
    metrics_error: NotRequired[str]
    missing_metrics: NotRequired[dict[str, str]]


class About(TypedDict):
    """To what a seed's final numbers belong.

    Attributes:
        seed: its number.
        run: fingerprint of the run's configuration.
        files: checksums of the other files by name.
    """

    seed: int
    run: str
    files: dict[str, str]


ABOUT = "about"
EVALUATION_NUMBERS = tuple(ElboRow.__annotations__)
"""What an evaluation of the ELBO writes down."""
FINAL_NUMBERS = tuple(FinalNumbers.__annotations__)
"""Names in ``final.json`` that are not metrics of the problem."""


def checked_evaluations(path: Path, rows: Any) -> list[ElboRow]:
    """Evaluations as they were written down, from plain data."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DamagedFileError(f"{path} is damaged: it holds no rows of numbers.")
    try:
        found = [conform(ElboRow, with_nan(row), f"row {i + 1}") for i, row in enumerate(rows)]
    except SchemaError as error:
        raise DamagedFileError(f"{path} is damaged: {error}.") from error
    for name in ("iterations", "evaluations", "seconds", "compile_seconds"):
        values = [row[name] for row in found]
        if any(not math.isfinite(v) or v < 0 for v in values) or values != sorted(values):
            raise DamagedFileError(f"{path} is damaged: {name} do not grow from row to row.")
    for name in ("zero_share", "invalid_share"):
        if not all(0 <= row[name] <= 1 for row in found):
            raise DamagedFileError(f"{path} is damaged: {name} must be from 0 to 1.")
    return found


def read_evaluations(path: Path, digest: str | None = None) -> list[ElboRow]:
    """The evaluations of the ELBO in a file, none if it is not there yet.

    Args:
        path: the file.
        digest: the checksum that it must have.
    """
    if digest is None and not path.is_file():
        return []
    rows, found = read_rows(path, EVALUATIONS)
    check_digest(path, found, digest)
    return checked_evaluations(path, rows)


def as_arrays(rows: Sequence[ElboRow]) -> dict[str, np.ndarray]:
    """One array per name."""
    return {name: np.array([row[name] for row in rows]) for name in EVALUATION_NUMBERS}  # type: ignore[literal-required]


def read_final(path: Path, seed: int | None = None, run: str | None = None) -> dict[str, Any] | None:
    """A seed's final numbers, None if they are not there yet; the entry ``about`` is an `About`.

    Args:
        path: the file.
        seed: whose it must be.
        run: the fingerprint of the configuration to which it must belong.
    """
    if not path.is_file():
        return None
    value = read_sealed_json(path, FINAL)[0]
    known = {name: value[name] for name in FINAL_NUMBERS if name in value}
    metrics = {k: v for k, v in value.items() if k not in FINAL_NUMBERS and k != ABOUT}
    try:
        about: About = conform(About, value.get(ABOUT), ABOUT)
        conform(FinalNumbers, with_nan(known), "")
        numbers = conform(dict[str, float], with_nan(metrics), "metrics")
    except SchemaError as error:
        raise DamagedFileError(f"{path} is damaged: {error}.") from error
    if seed is not None and about["seed"] != seed:
        raise DamagedFileError(f"{path} is damaged: it belongs to seed {about['seed']}, not to seed {seed}.")
    if run is not None and about["run"] != run:
        raise DamagedFileError(f"{path} is damaged: it belongs to a run with another configuration.")
    return {**with_nan(known), **numbers, ABOUT: about}


def read_failure(path: Path) -> dict[str, Any] | None:
    """What went wrong with a seed, None if nothing did."""
    if not path.is_file():
        return None
    try:
        return conform(Failure, read_sealed_json(path, FAILURE)[0], "")
    except SchemaError as error:
        raise DamagedFileError(f"{path} is damaged: {error}.") from error


def check_digest(path: Path, found: str, expected: str | None) -> None:
    """Raise if a file is whole but not the one that was expected."""
    if expected is not None and found != expected:
        raise DamagedFileError(
            f"{path} is damaged: the seed's final numbers belong to another file of this name."
        )
