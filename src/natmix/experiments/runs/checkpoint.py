"""A state in a file, exactly: what is needed to go on as if nothing had happened."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from natmix.files import replacing
from natmix.gmmvi import GMMVI
from natmix.mixture import Mixture
from natmix.modules.state import State

FORMAT = "natmix.State"
VERSION = "2"

_LARGE = 1 << 16  # bytes; below, looking for empty rows is not worth it


def save_state(path: Path, state: State, progress: Mapping[str, Any]) -> None:
    """Write a state and what goes with it (JSON), replacing the file in one step.

    Trailing rows of zeros, the empty part of the sample database, are left out.
    """
    tensors, shapes = {}, {}
    for name, leaf in _named(state):
        array = _to_numpy(leaf)
        shapes[name] = list(array.shape)
        tensors[name] = _without_empty_rows(array)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "key": str(jax.random.key_impl(state.key)),
        "progress": json.dumps(dict(progress)),
        "shapes": json.dumps(shapes),
    }
    with replacing(path) as temporary:
        save_file(tensors, temporary, header)


def load_state(path: Path, algorithm: GMMVI, start: Mixture, prior: Mixture) -> tuple[State, dict[str, Any]]:
    """The state written by `save_state` and what went with it.

    Args:
        path: the file.
        algorithm: the algorithm of the run.
        start: the mixture the run started from; its type and dimension are the state's.
        prior: likewise.
    """
    template = eqx.filter_eval_shape(algorithm.init, jax.random.key(0), start, prior)
    with _opened(path) as (file, header):
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    shapes = json.loads(header["shapes"])
    names = [name for name, _ in _named(template)]
    if set(names) != set(stored):
        raise ValueError(
            f"{path} belongs to another version of the algorithm; remove the seed's folder to begin it anew."
        )
    leaves = [
        _from_numpy(_padded(stored[name], tuple(shapes[name])), leaf, header["key"])
        for name, leaf in _named(template)
    ]
    state = jax.tree.unflatten(jax.tree.structure(template), leaves)
    return state, json.loads(header["progress"])


def stored_iterations(path: Path) -> int:
    """After how many iterations the state was written; 0 if there is none."""
    if not path.is_file():
        return 0
    with _opened(path) as (_, header):
        return int(json.loads(header["progress"])["iterations"])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """The file and its header."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT or header.get("version") != VERSION:
                raise ValueError(f"{path} is no checkpoint this natmix can read; remove the seed's folder.")
            yield file, header
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}; remove the seed's folder.") from error


def _named(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")


def _from_numpy(array: np.ndarray, like: Any, key_kind: str) -> Any:
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=key_kind)
    if array.dtype != like.dtype:
        raise ValueError(f"The checkpoint holds {array.dtype} where the run has {like.dtype}.")
    return jnp.asarray(array)


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
