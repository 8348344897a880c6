"""Files of reference samples: a safetensors file, and a JSON file with settings and diagnostics."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

from natmix.files.cache import cache_base
from natmix.files.durable import write_file, write_text


@dataclass(frozen=True)
class Reference:
    """Samples of a test problem's target.

    Attributes:
        name: of the test problem.
        samples: in float64 and in random order, so that the first n are as good as any.
        sha256: of the file they were read from.
        info: the JSON file beside them: settings, seed, versions, R-hat, effective sample sizes, ...
    """

    name: str
    samples: Float[np.ndarray, "N D"]
    sha256: str
    info: dict[str, Any]


def cache_directory() -> Path:
    """``$NATMIX_CACHE/references``, else ``$XDG_CACHE_HOME/natmix/references``, else below ``~/.cache``."""
    return cache_base() / "references"


def save(
    name: str, samples: Float[np.ndarray, "N D"], info: Mapping[str, Any], directory: Path | None = None
) -> Reference:
    """Write both files; the samples first, so that the hash never belongs to a missing file."""
    folder = directory or cache_directory()
    folder.mkdir(parents=True, exist_ok=True)
    data = write_tensors({"samples": np.ascontiguousarray(samples, dtype=np.float64)})
    digest = hashlib.sha256(data).hexdigest()
    text = json.dumps({"name": name, "sha256": digest, **info}, indent=1) + "\n"
    write_file(folder / f"{name}.safetensors", data)
    write_text(folder / f"{name}.json", text)
    return load(name, folder)


def load(name: str, directory: Path | None = None) -> Reference:
    """Read what `save` wrote and check its hash."""
    folder = directory or cache_directory()
    path, beside = folder / f"{name}.safetensors", folder / f"{name}.json"
    again = f"`natmix references {name}`"
    if not path.is_file() or not beside.is_file():
        raise FileNotFoundError(
            f"There are no reference samples of {name} in {folder}: generate them with {again}."
        )
    data = path.read_bytes()
    try:
        info = json.loads(beside.read_text())
        samples = read_tensors(data)["samples"]
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(
            f"{path} or {beside.name} is damaged; generate them again with {again} --force."
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if info.get("sha256") != digest:
        raise ValueError(
            f"{path} is not the file that {beside.name} describes (its SHA-256 is {digest}); "
            f"generate both again with {again} --force."
        )
    return Reference(name, samples, digest, info)
