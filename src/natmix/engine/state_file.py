"""The state of a run as arrays in a sealed file, bit for bit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from natmix.files.arrays import SealedArrays
from natmix.files.json_text import parse_json
from natmix.files.schema import SchemaError, conform
from natmix.files.seal import DamagedFileError
from natmix.gmmvi import GMMVI
from natmix.mixture import Mixture
from natmix.mixture.files import WEIGHT_ERROR
from natmix.modules.state import State

_LARGE = 1 << 16  # bytes; below, looking for empty rows is not worth it
_STATE = "state"


def state_arrays(state: State) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata; trailing rows of zeros, the empty part of the sample database, are left out."""
    arrays, shapes = {}, {}
    for name, leaf in _named(state):
        array = _to_numpy(leaf)
        shapes[name] = list(array.shape)
        arrays[_STATE + name] = _without_empty_rows(array)
    return arrays, {"key": str(jax.random.key_impl(state.key)), "shapes": json.dumps(shapes)}


def stored_state(
    path: Path, content: SealedArrays, algorithm: GMMVI, start: Mixture, prior: Mixture | None, anew: str
) -> State:
    """The state in a file, checked.

    Args:
        path: of the file, for messages.
        content: what it holds.
        algorithm: of the run.
        start: the mixture the run started from; its type and dimension are the state's.
        prior: likewise.
        anew: what to do to begin anew, for messages.
    """
    stored = group(content, _STATE)
    shapes = metadata(path, content, "shapes", dict[str, list[int]])
    log_weights = stored.get(".mixture.log_weights", np.zeros(0))
    if log_weights.ndim != 1 or not log_weights.size:
        raise DamagedFileError(f"{path} is damaged: its state has no log weights.")
    template = eqx.filter_eval_shape(algorithm.init, jax.random.key(0), start, prior, log_weights.size)
    named = _named(template)
    if {name for name, _ in named} != set(stored):
        raise ValueError(f"{path} belongs to another version of the algorithm; {anew}.")
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


def check_state(path: Path, state: State, iterations: int, components: int) -> None:
    """What must hold of any state; log weights of -inf are absent components."""
    log_weights = np.asarray(state.mixture.log_weights, float)
    total = float(np.sum(np.exp(np.minimum(log_weights, 1.0))))
    if not abs(total - 1) <= WEIGHT_ERROR:
        raise DamagedFileError(f"{path} is damaged: its weights sum to {total:.4g}, not to one.")
    exists = log_weights > -np.inf
    if not np.all(np.asarray(state.mixture.components.finite())[exists]):
        raise DamagedFileError(f"{path} is damaged: it has components that are not finite.")
    if int(state.iteration) != iterations or int(np.sum(exists)) != components:
        raise DamagedFileError(f"{path} is damaged: its state does not belong to its progress.")


def metadata(path: Path, content: SealedArrays, name: str, hint: Any) -> Any:
    """An entry of the metadata, of this type."""
    try:
        return conform(hint, parsed(path, content, name), name)
    except SchemaError as error:
        raise DamagedFileError(f"{path} is damaged: {error}.") from error


def parsed(path: Path, content: SealedArrays, name: str) -> Any:
    """An entry of the metadata, which is JSON."""
    try:
        return parse_json(content.metadata.get(name, ""))
    except ValueError as error:
        raise DamagedFileError(f"{path} is damaged: its entry {name!r} is no JSON.") from error


def group(content: SealedArrays, prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with ``prefix``, without it."""
    return {k.removeprefix(prefix): a for k, a in content.arrays.items() if k.startswith(prefix)}


def grouped(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays with ``prefix`` before their names."""
    return {prefix + name: np.asarray(array) for name, array in arrays.items()}


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
