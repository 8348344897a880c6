"""Checkpoints: everything that is needed to go on as if nothing had happened, in one sealed file.

It holds the state exactly, the progress, and what the recorders have kept: the trace, the weights over time
and the evaluations of the ELBO. Nothing else of a seed's folder is read in order to go on.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from natmix.engine.state_file import (
    check_state,
    group,
    grouped,
    metadata,
    parsed,
    state_arrays,
    stored_state,
)
from natmix.experiments.runs.history import WeightHistory, checked_trace, checked_weights
from natmix.experiments.runs.rows import ElboRow, checked_evaluations
from natmix.files.arrays import SealedArrays, read_arrays, write_arrays
from natmix.files.generations import newest, previous
from natmix.files.json_text import to_json
from natmix.files.schema import conform
from natmix.files.seal import CHECKPOINT, DamagedFileError
from natmix.gmmvi import GMMVI
from natmix.mixture import Mixture
from natmix.modules.state import State

_TRACE, _WEIGHTS = "trace.", "weights."
_ANEW = "remove the seed's folder to begin it anew"


class Owner(TypedDict):
    """Whose checkpoint it is: the seed, and a fingerprint of the run's configuration."""

    seed: int
    run: str


class Progress(TypedDict):
    """How far a seed is, and when its recorders will act next."""

    iterations: int
    evaluations: int
    seconds: float
    compile_seconds: float
    components: int
    rate: float
    next_evaluation: float
    weight_stride: int
    seeds_together: int


@dataclasses.dataclass(frozen=True)
class Records:
    """What the recorders of a seed have kept.

    Attributes:
        progress: of the seed.
        trace: every iteration's numbers.
        weights: component weights over time.
        evaluations: of the ELBO.
    """

    progress: Progress
    trace: dict[str, np.ndarray]
    weights: WeightHistory
    evaluations: list[ElboRow]


def save_checkpoint(path: Path, state: State, records: Records, owner: Owner) -> None:
    """Write the newest generation; the one before is kept beside it."""
    arrays, about = state_arrays(state)
    arrays |= grouped(_TRACE, records.trace) | grouped(_WEIGHTS, records.weights.arrays())
    about |= {
        "progress": json.dumps(records.progress),
        "evaluations": to_json(records.evaluations),
        "owner": json.dumps(owner),
    }
    write_arrays(path, CHECKPOINT, arrays, about, keep=previous(path))


def load_checkpoint(
    path: Path, algorithm: GMMVI, start: Mixture, prior: Mixture, owner: Owner | None = None
) -> tuple[State, Records, str]:
    """State and records of the newest generation that is whole, and why it is not the last one.

    Args:
        path: the file.
        algorithm: the algorithm of the run.
        start: the mixture the run started from; its type and dimension are the state's.
        prior: likewise.
        owner: whose checkpoint it must be.
    """

    def read(file: Path) -> tuple[State, Records]:
        content = read_arrays(file, CHECKPOINT)
        if owner is not None:
            _check_owner(file, content, owner)
        records = _records(file, content)
        state = stored_state(file, content, algorithm, start, prior, _ANEW)
        progress = records.progress
        check_state(file, state, progress["iterations"], progress["components"])
        return state, records

    (state, records), why = newest(path, read)
    return state, records, why


def load_records(path: Path) -> Records:
    """The records of the newest generation that is whole."""
    return newest(path, lambda file: _records(file, read_arrays(file, CHECKPOINT)))[0]


def _check_owner(path: Path, content: SealedArrays, owner: Owner) -> None:
    found = metadata(path, content, "owner", Owner)
    if found["seed"] != owner["seed"]:
        raise ValueError(f"{path} is of seed {found['seed']}, not {owner['seed']}; remove the seed's folder.")
    if found["run"] != owner["run"]:
        raise ValueError(
            f"{path} is the checkpoint of a run with another configuration; remove the seed's folder."
        )


def _records(path: Path, content: SealedArrays) -> Records:
    progress = metadata(path, content, "progress", Progress)
    iterations = progress["iterations"]
    for name, value in progress.items():
        if not value >= 0:
            raise DamagedFileError(f"{path} is damaged: progress.{name} must not be negative, got {value}.")
    trace = checked_trace(path, group(content, _TRACE))
    rows = len(next(iter(trace.values()), ()))
    if rows != iterations:
        raise DamagedFileError(f"{path} is damaged: its trace has {rows} rows for {iterations} iterations.")
    weights = checked_weights(path, group(content, _WEIGHTS))
    evaluations = checked_evaluations(path, parsed(path, content, "evaluations"))
    ends = (*weights.iterations[-1:].tolist(), *(row["iterations"] for row in evaluations[-1:]))
    if any(end > iterations for end in ends):
        raise DamagedFileError(f"{path} is damaged: its records are later than its {iterations} iterations.")
    return Records(progress, trace, weights, evaluations)


def progress_of(numbers: Mapping[str, Any]) -> Progress:
    """These numbers as the progress of a seed."""
    return conform(Progress, dict(numbers), "progress")
