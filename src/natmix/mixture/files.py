"""Mixtures in sealed safetensors files: arrays as they are, everything else as JSON in the header."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natmix.files.arrays import read_arrays, write_arrays
from natmix.files.seal import MIXTURE, DamagedFileError, FileFormat
from natmix.gaussians import FAMILIES, AbstractGaussians
from natmix.mixture.mixture import Mixture

_TYPES = ("float32", "float64")
WEIGHT_ERROR = 1e-3
"""By how much the sum of a mixture's weights may differ from one: rounding in float32 is far below it."""


def save_mixture(mixture: Mixture, path: str | Path, metadata: Mapping[str, Any] | None = None) -> str:
    """Write ``mixture`` and ``metadata`` to ``path`` in one step; returns the checksum."""
    header = {
        "representation": mixture.covariance_family,
        "metadata": _to_json({} if metadata is None else metadata),
    }
    return save_arrays(Path(path), MIXTURE, mixture_tensors(mixture), header)


def load_mixture(path: str | Path, dtype: Any = None) -> Mixture:
    """Read a file written by `save_mixture`, in the type it was written in unless ``dtype`` is given."""
    return read_mixture(Path(path), dtype)[0]


def read_mixture(path: Path, dtype: Any = None) -> tuple[Mixture, str]:
    """The mixture in a file, and the checksum of the file."""
    metadata, stored, digest = read_arrays(path, MIXTURE)
    family = metadata.get("representation", "")
    mixture = built_mixture(family, stored, dtype, path)
    check_names(path, stored, set(mixture_shapes(family, 1, 1)))
    return mixture, digest


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
        raise DamagedFileError(f"{path} is damaged: the shapes of its arrays do not belong to one mixture.")
    types = sorted({str(a.dtype) for a in (log_weights, *parameters.values())})
    if len(types) > 1 or types[0] not in _TYPES:
        found = " and ".join(types)
        raise DamagedFileError(f"{path} is damaged: its arrays are {found}, not all float32 or all float64.")
    _check_values(kind, log_weights, parameters, str(path))
    tensors = _in_type({"log_weights": log_weights, **parameters}, dtype, path)
    arrays = {name: jnp.asarray(value) for name, value in tensors.items()}
    mixture = Mixture(arrays.pop("log_weights"), kind.from_parameters(arrays))
    _check_scale(mixture.components, str(path))
    return mixture


def mixture_shapes(family: str, K: int, D: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of a mixture."""
    return {"log_weights": (K,), **FAMILIES[family].parameter_shapes(K, D)}


def load_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata of a file written by `Mixture.save`."""
    path = Path(path)
    text = read_arrays(path, MIXTURE).metadata.get("metadata", "")
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged: its metadata are no JSON.") from error
    if not isinstance(metadata, dict):
        raise DamagedFileError(f"{path} is damaged: its metadata are no dictionary.")
    return metadata


def mixture_tensors(mixture: Mixture) -> dict[str, np.ndarray]:
    """The arrays of a mixture, checked."""
    log_weights = np.ascontiguousarray(mixture.log_weights)
    parameters = {name: np.ascontiguousarray(a) for name, a in mixture.components.parameters().items()}
    _check_values(type(mixture.components), log_weights, parameters, "The mixture")
    _check_scale(mixture.components, "The mixture")
    return {"log_weights": log_weights, **parameters}


def check_names(path: Path, stored: Mapping[str, np.ndarray], known: set[str]) -> None:
    """Raise if a file has arrays that nobody knows."""
    unknown = sorted(set(stored) - known)
    if unknown:
        raise DamagedFileError(f"{path} is damaged: its array {unknown[0]!r} belongs to nothing.")


def save_arrays(path: Path, kind: FileFormat, arrays: dict[str, np.ndarray], header: dict[str, str]) -> str:
    """A sealed safetensors file, replaced in one step; returns the checksum."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist; create it before saving.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file to save to.")
    return write_arrays(path, kind, arrays, header)


def _in_type(tensors: dict[str, np.ndarray], dtype: Any, path: Path) -> dict[str, np.ndarray]:
    wanted = tensors["mean"].dtype if dtype is None else np.dtype(dtype)
    if wanted.name not in _TYPES:
        raise ValueError(f"A mixture is loaded in float32 or float64, not in {wanted}.")
    if wanted == np.float64 and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise ValueError(
            f"{path} would load in float64, which JAX has switched off: call "
            "jax.config.update('jax_enable_x64', True) first, or pass dtype='float32' to lose precision."
        )
    with np.errstate(over="ignore"):
        found = {name: value.astype(wanted) for name, value in tensors.items()}
    if not all(np.all(np.isfinite(value)) for name, value in found.items() if name != "log_weights"):
        raise ValueError(f"{path} holds numbers that are too large for {wanted}.")
    return found


def _check_values(
    kind: type[AbstractGaussians], log_weights: np.ndarray, parameters: Mapping[str, np.ndarray], what: str
) -> None:
    if np.any(np.isnan(log_weights)) or np.any(log_weights == np.inf) or np.all(log_weights == -np.inf):
        raise ValueError(f"{what} has log weights that are not a distribution (NaN, inf or all -inf).")
    with np.errstate(over="ignore"):
        total = float(np.sum(np.exp(log_weights.astype(float))))
    if not abs(total - 1) <= WEIGHT_ERROR:
        raise ValueError(f"{what} has weights that sum to {total:.4g}, not to one.")
    if not all(np.all(np.isfinite(value)) for value in parameters.values()):
        raise ValueError(f"{what} has means or covariances that are NaN or infinite.")
    flaw = kind.flaw(parameters)
    if flaw:
        raise ValueError(f"{what} {flaw}.")


def _check_scale(parts: AbstractGaussians, what: str) -> None:
    if not np.all(np.isfinite(np.asarray(parts.half_log_det()))):
        raise ValueError(f"{what} has a component without a positive scale.")


def _to_json(metadata: Mapping[str, Any]) -> str:
    if not isinstance(metadata, Mapping):
        raise TypeError(f"Metadata must be a dictionary, got {type(metadata).__name__}.")
    try:
        # Sorted by name, as equal metadata give equal bytes; names that are numbers are text from here on.
        return json.dumps(json.loads(json.dumps(dict(metadata))), sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"Metadata must consist of numbers, strings, lists and dictionaries that JSON can hold: {error}."
        ) from error
