"""Results in safetensors files: arrays as they are, everything else as JSON in the header, no code."""

import dataclasses
import json
import math
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from natmix._version import __version__
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import Elbo
from natmix.gmmvi import GMMVI
from natmix.mixture.files import (
    RESULT_FORMAT,
    VERSION,
    built_mixture,
    mixture_tensors,
    read_tensors,
    write_tensors,
)
from natmix.modules.codenames import MODULES
from natmix.result.result import Counts, Result, Timings
from natmix.result.saved_model import GivenModel, model_file, model_tensors, saved_model
from natmix.result.saved_searches import keep_diagnosis, loaded_verification, saved_searches

_PACKAGES = ("jax", "jaxlib", "equinox", "numpy")


def save_result(result: Result, path: str | Path) -> None:
    """`Result.save`."""
    model = model_file(result)
    header = {
        "elbo": dataclasses.asdict(result.elbo),
        "counts": dataclasses.asdict(result.counts),
        "timings": dataclasses.asdict(result.timings),
        "stopped": result.stopped,
        "settings": result.settings,
        "notes": list(result.notes),
        "algorithm": result.algorithm.settings(),
        "start": None if result.start is None else result.start.covariance_family,
        "model": None if model is None else model.header,
        "versions": _versions(),
        **saved_searches(result),
    }
    tensors = mixture_tensors(result.mixture)
    if result.start is not None:
        tensors |= _under("start", mixture_tensors(result.start))
    tensors |= _under("trajectory", result.trajectory)
    if result.draws is not None:
        tensors |= _under("draws", _draws_tensors(result.draws))
    tensors |= model_tensors(model)
    write_tensors(
        Path(path),
        {name: np.asarray(value, order="C") for name, value in tensors.items()},
        {
            "format": RESULT_FORMAT,
            "version": VERSION,
            "representation": result.mixture.covariance_family,
            "result": json.dumps(_finite(header), allow_nan=False),
        },
    )


def load_result(path: str | Path, given: GivenModel, dtype: Any = None) -> Result:
    """`Result.load`."""
    path = Path(path)
    outer, stored = read_tensors(path, RESULT_FORMAT)
    header = json.loads(outer["result"], object_hook=_as_float)
    mixture = built_mixture(outer["representation"], stored, dtype, path)
    start = None
    if header["start"] is not None:
        start = built_mixture(header["start"], _of("start", stored), mixture.dtype, path)
    result = Result(
        mixture=mixture,
        elbo=Elbo(**header["elbo"]),
        trajectory=_of("trajectory", stored),
        counts=Counts(**header["counts"]),
        timings=Timings(**header["timings"]),
        stopped=header["stopped"],
        algorithm=_algorithm(header["algorithm"], path),
        settings=header["settings"],
        notes=tuple(header["notes"]),
        draws=_draws(_of("draws", stored)),
        start=None if start is None else jax.device_get(start),
        verification=loaded_verification(header, mixture.dim),
    )
    known = None if header["model"] is None else saved_model(header["model"], stored, result.draws)
    loaded = given.joined(dataclasses.replace(result, model=known))
    keep_diagnosis(loaded, header)
    return loaded


def _draws_tensors(draws: EvaluatedDraws) -> dict[str, np.ndarray]:
    """The draws in the float type in which they were computed: float64 would add nothing."""
    arrays = {"x": draws.x, "log_target": draws.log_target, "log_mixture": draws.log_mixture}
    return {name: value.astype(draws.dtype) for name, value in arrays.items()}


def _draws(stored: dict[str, np.ndarray]) -> EvaluatedDraws | None:
    if not stored:
        return None
    arrays = {name: value.astype(float) for name, value in stored.items()}
    return EvaluatedDraws(**arrays, dtype=stored["log_target"].dtype)


def _under(group: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{group}.{name}": np.asarray(value) for name, value in arrays.items()}


def _of(group: str, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(f"{group}."): value
        for name, value in stored.items()
        if name.startswith(f"{group}.")
    }


def _algorithm(settings: dict[str, Any], path: Path) -> GMMVI:
    modules = {m: {k: v for k, v in settings[m].items() if k != "option"} for m in MODULES}
    numbers = {name: settings[name] for name in ("temperature", "zero_penalty")}
    try:
        return GMMVI.from_codename(settings["codename"], **modules, **numbers)
    except ValueError as error:
        raise ValueError(
            f"{path} holds the result of an algorithm that this version of natmix does not have: {error}"
        ) from error


def _versions() -> dict[str, str]:
    found = {"natmix": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _finite(value: Any) -> Any:
    """NaN and infinity by name, as JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, (list, tuple)) else value


def _as_float(value: dict[str, Any]) -> Any:
    return float(value["float"]) if set(value) == {"float"} and isinstance(value["float"], str) else value
