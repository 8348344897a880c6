"""Mixtures in safetensors files: arrays as they are, everything else as JSON in the header."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from natmix.files import replacing
from natmix.gaussians import FAMILIES, AbstractGaussians
from natmix.mixture.mixture import Mixture

FORMAT = "natmix.Mixture"
RESULT_FORMAT = "natmix.Result"
VERSION = "1"

_NOUNS = {FORMAT: "mixture", RESULT_FORMAT: "result"}


def save_mixture(mixture: Mixture, path: str | Path, metadata: Mapping[str, Any] | None = None) -> None:
    """Write ``mixture`` and ``metadata`` to ``path``, replacing the file in one step."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "representation": mixture.covariance_family,
        "metadata": _to_json({} if metadata is None else metadata),
    }
    write_tensors(Path(path), mixture_tensors(mixture), header)


def load_mixture(path: str | Path, dtype: Any = None) -> Mixture:
    """Read a file written by `save_mixture`, in the type it was written in unless ``dtype`` is given."""
    path = Path(path)
    header, stored = read_tensors(path, FORMAT)
    return built_mixture(header.get("representation", ""), stored, dtype, path)


def built_mixture(family: str, stored: Mapping[str, np.ndarray], dtype: Any, path: Path) -> Mixture:
    """The mixture of this covariance family from the arrays in a file."""
    if family and family not in FAMILIES:
        raise ValueError(
            f"{path} holds a mixture of the covariance family {family!r}, which is not registered, only "
            f"{', '.join(FAMILIES)}: import the package that brings it."
        )
    if not family or not {"log_weights", "mean"} <= set(stored):
        raise ValueError(f"{path} is incomplete: it does not hold the arrays of a natmix mixture.")
    kind = FAMILIES[family]
    log_weights, mean = stored["log_weights"], stored["mean"]
    K, D = mean.shape if mean.ndim == 2 else (0, 0)
    shapes = kind.parameter_shapes(max(K, 1), max(D, 1))
    if not set(shapes) <= set(stored):
        raise ValueError(f"{path} is incomplete: it does not hold the arrays of a natmix mixture.")
    parameters = {name: stored[name] for name in shapes}
    same = all(parameters[name].shape == shape for name, shape in shapes.items())
    if not same or log_weights.shape != (K,):
        raise ValueError(f"{path} is damaged: the shapes of its arrays do not belong to one mixture.")
    _check_finite(log_weights, parameters, str(path))
    tensors = _in_type({"log_weights": log_weights, **parameters}, dtype, path)
    arrays = {name: jnp.asarray(value) for name, value in tensors.items()}
    mixture = Mixture(arrays.pop("log_weights"), kind.from_parameters(arrays))
    _check_scale(mixture.components, str(path))
    return mixture


def load_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata of a file written by `Mixture.save`."""
    return json.loads(read_tensors(Path(path), FORMAT, arrays=False)[0].get("metadata", "{}"))


def mixture_tensors(mixture: Mixture) -> dict[str, np.ndarray]:
    """The arrays of a mixture, checked."""
    log_weights = np.ascontiguousarray(mixture.log_weights)
    parameters = {name: np.ascontiguousarray(a) for name, a in mixture.components.parameters().items()}
    _check_finite(log_weights, parameters, "The mixture")
    _check_scale(mixture.components, "The mixture")
    return {"log_weights": log_weights, **parameters}


def _in_type(tensors: dict[str, np.ndarray], dtype: Any, path: Path) -> dict[str, np.ndarray]:
    wanted = tensors["mean"].dtype if dtype is None else np.dtype(dtype)
    if wanted not in (np.float32, np.float64):
        raise ValueError(f"A mixture is loaded in float32 or float64, not in {wanted}.")
    if wanted == np.float64 and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise ValueError(
            f"{path} would load in float64, which JAX has switched off: call "
            "jax.config.update('jax_enable_x64', True) first, or pass dtype='float32' to lose precision."
        )
    return {name: value.astype(wanted) for name, value in tensors.items()}


def _check_finite(log_weights: np.ndarray, parameters: Mapping[str, np.ndarray], what: str) -> None:
    if np.any(np.isnan(log_weights)) or np.any(log_weights == np.inf) or np.all(log_weights == -np.inf):
        raise ValueError(f"{what} has log weights that are not a distribution (NaN, inf or all -inf).")
    if not all(np.all(np.isfinite(value)) for value in parameters.values()):
        raise ValueError(f"{what} has means or covariances that are NaN or infinite.")


def _check_scale(parts: AbstractGaussians, what: str) -> None:
    if not np.all(np.isfinite(np.asarray(parts.half_log_det()))):
        raise ValueError(f"{what} has a component without a positive scale.")


def _to_json(metadata: Mapping[str, Any]) -> str:
    if not isinstance(metadata, Mapping):
        raise TypeError(f"Metadata must be a dictionary, got {type(metadata).__name__}.")
    try:
        return json.dumps(dict(metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"Metadata must consist of numbers, strings, lists and dictionaries that JSON can hold: {error}."
        ) from error


def write_tensors(path: Path, tensors: dict[str, np.ndarray], header: dict[str, str]) -> None:
    """A safetensors file, replaced in one step."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist; create it before saving.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file to save to.")
    with replacing(path) as temporary:
        temporary.write_bytes(save(tensors, header))


def read_tensors(path: Path, kind: str, arrays: bool = True) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Header and arrays of a file of this kind."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            _check_header(header, path, kind)
            names = file.keys() if arrays else []
            return header, {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        noun = _NOUNS[kind]
        raise ValueError(f"{path} is not a natmix {noun}: it is not a safetensors file.") from error


def _check_header(header: dict[str, str], path: Path, kind: str) -> None:
    found = header.get("format", "")
    if found != kind and found in _NOUNS:
        raise ValueError(f"{path} holds a {_NOUNS[found]}, not a {_NOUNS[kind]}: load it with {found}.load.")
    if found != kind:
        raise ValueError(f"{path} is not a natmix {_NOUNS[kind]}: it was written by something else.")
    if header.get("version") != VERSION:
        raise ValueError(
            f"{path} has format version {header.get('version')}, this natmix reads version {VERSION}; "
            "use the natmix that wrote it or a newer one."
        )
