"""Checkpoints: everything that is needed to go on as if nothing had happened, in one sealed file.

It holds the state exactly, the progress, and what the recorders have kept: the trace, the weights over time
and the evaluations of the ELBO. Nothing else of a seed's folder is read in order to go on.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from natmix.experiments.runs.history import WeightHistory, checked_trace, checked_weights
from natmix.experiments.runs.rows import ElboRow, checked_evaluations
from natmix.files.arrays import SealedArrays, read_arrays, write_arrays
from natmix.files.generations import newest, previous
from natmix.files.json_text import parse_json, to_json
from natmix.files.schema import SchemaError, conform
from natmix.files.seal import CHECKPOINT, DamagedFileError
from natmix.gmmvi import GMMVI
from natmix.mixture import Mixture
from natmix.mixture.files import WEIGHT_ERROR
from natmix.modules.state import State

_LARGE = 1 << 16  # bytes; below, looking for empty rows is not worth it
_STATE, _TRACE, _WEIGHTS = "state", "trace.", "weights."


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
    """Write the newest generation; the one before is kept beside it.

    Trailing rows of zeros, the empty part of the sample database, are left out.
    """
    arrays, shapes = {}, {}
    for name, leaf in _named(state):
        array = _to_numpy(leaf)
        shapes[name] = list(array.shape)
        arrays[_STATE + name] = _without_empty_rows(array)
    arrays |= {_TRACE + name: array for name, array in records.trace.items()}
    arrays |= {_WEIGHTS + name: array for name, array in records.weights.arrays().items()}
    metadata = {
        "key": str(jax.random.key_impl(state.key)),
        "shapes": json.dumps(shapes),
        "progress": json.dumps(records.progress),
        "evaluations": to_json(records.evaluations),
        "owner": json.dumps(owner),
    }
    write_arrays(path, CHECKPOINT, arrays, metadata, keep=previous(path))


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
        state = _state(file, content, algorithm, start, prior)
        _check_state(file, state, records.progress)
        return state, records

    (state, records), why = newest(path, read)
    return state, records, why


def load_records(path: Path) -> Records:
    """The records of the newest generation that is whole."""
    return newest(path, lambda file: _records(file, read_arrays(file, CHECKPOINT)))[0]


def _check_owner(path: Path, content: SealedArrays, owner: Owner) -> None:
    found = _metadata(path, content, "owner", Owner)
    if found["seed"] != owner["seed"]:
        raise ValueError(f"{path} is of seed {found['seed']}, not {owner['seed']}; remove the seed's folder.")
    if found["run"] != owner["run"]:
        raise ValueError(
            f"{path} is the checkpoint of a run with another configuration; remove the seed's folder."
        )


def _records(path: Path, content: SealedArrays) -> Records:
    progress = _metadata(path, content, "progress", Progress)
    iterations = progress["iterations"]
    for name, value in progress.items():
        if not value >= 0:
            raise DamagedFileError(f"{path} is damaged: progress.{name} must not be negative, got {value}.")
    trace = checked_trace(path, _group(content, _TRACE))
    rows = len(next(iter(trace.values()), ()))
    if rows != iterations:
        raise DamagedFileError(f"{path} is damaged: its trace has {rows} rows for {iterations} iterations.")
    weights = checked_weights(path, _group(content, _WEIGHTS))
    evaluations = checked_evaluations(path, _parsed(path, content, "evaluations"))
    ends = (*weights.iterations[-1:].tolist(), *(row["iterations"] for row in evaluations[-1:]))
    if any(end > iterations for end in ends):
        raise DamagedFileError(f"{path} is damaged: its records are later than its {iterations} iterations.")
    return Records(progress, trace, weights, evaluations)


def _state(path: Path, content: SealedArrays, algorithm: GMMVI, start: Mixture, prior: Mixture) -> State:
    stored = _group(content, _STATE)
    shapes = _metadata(path, content, "shapes", dict[str, list[int]])
    log_weights = stored.get(".mixture.log_weights", np.zeros(0))
    if log_weights.ndim != 1 or not log_weights.size:
        raise DamagedFileError(f"{path} is damaged: its state has no log weights.")
    template = eqx.filter_eval_shape(algorithm.init, jax.random.key(0), start, prior, log_weights.size)
    named = _named(template)
    if {name for name, _ in named} != set(stored):
        raise ValueError(
            f"{path} belongs to another version of the algorithm; remove the seed's folder to begin it anew."
        )
    leaves = []
    for name, like in named:
        array, shape = stored[name], tuple(shapes.get(name, ()))
        expected = jax.eval_shape(jax.random.key_data, like).shape if _is_key(like) else like.shape
        fits = shape == expected and array.ndim == len(shape) and array.shape[1:] == shape[1:]
        if not fits or (shape and not len(array) <= shape[0]):
            raise DamagedFileError(
                f"{path} is damaged: {name} has the shape {shape} where the run has {expected}."
            )
        if not _is_key(like) and array.dtype != like.dtype:
            raise ValueError(f"{path} holds {array.dtype} in {name} where the run has {like.dtype}.")
        leaves.append(_from_numpy(path, _padded(array, shape), like, content.metadata.get("key", "")))
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _check_state(path: Path, state: State, progress: Progress) -> None:
    """What must hold of any state; log weights of -inf are absent components."""
    log_weights = np.asarray(state.mixture.log_weights, float)
    total = float(np.sum(np.exp(np.minimum(log_weights, 1.0))))
    if not abs(total - 1) <= WEIGHT_ERROR:
        raise DamagedFileError(f"{path} is damaged: its weights sum to {total:.4g}, not to one.")
    exists = log_weights > -np.inf
    if not np.all(np.asarray(state.mixture.components.finite())[exists]):
        raise DamagedFileError(f"{path} is damaged: it has components that are not finite.")
    if int(state.iteration) != progress["iterations"] or int(np.sum(exists)) != progress["components"]:
        raise DamagedFileError(f"{path} is damaged: its state does not belong to its progress.")


def _metadata(path: Path, content: SealedArrays, name: str, hint: Any) -> Any:
    try:
        return conform(hint, _parsed(path, content, name), name)
    except SchemaError as error:
        raise DamagedFileError(f"{path} is damaged: {error}.") from error


def _parsed(path: Path, content: SealedArrays, name: str) -> Any:
    try:
        return parse_json(content.metadata.get(name, ""))
    except ValueError as error:
        raise DamagedFileError(f"{path} is damaged: its entry {name!r} is no JSON.") from error


def _group(content: SealedArrays, prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): a for k, a in content.arrays.items() if k.startswith(prefix)}


def _named(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")


def _from_numpy(path: Path, array: np.ndarray, like: Any, key_kind: str) -> Any:
    if not _is_key(like):
        return jnp.array(array)
    try:
        return jax.random.wrap_key_data(jnp.asarray(array), impl=key_kind)
    except (TypeError, ValueError) as error:
        raise DamagedFileError(
            f"{path} is damaged: it has no random key of the kind {key_kind!r}."
        ) from error


def _without_empty_rows(array: np.ndarray) -> np.ndarray:
    if array.ndim == 0 or array.nbytes < _LARGE:
        return array
    # Compared as bits: -0.0 is not nothing.
    bits = array.view(f"u{array.dtype.itemsize}").reshape(len(array), -1)
    used = bits.any(axis=1)
    rows = int(np.flatnonzero(used)[-1]) + 1 if used.any() else 0
    return np.ascontiguousarray(array[: max(rows, 1)])


def _padded(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape == shape:
        return array
    full = np.zeros(shape, array.dtype)
    full[: len(array)] = array
    return full


def progress_of(numbers: Mapping[str, Any]) -> Progress:
    """These numbers as the progress of a seed."""
    return conform(Progress, dict(numbers), "progress")
