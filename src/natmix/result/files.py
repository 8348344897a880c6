"""Results in sealed safetensors files: arrays as they are, everything else as JSON in the header, no code."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

import jax
import numpy as np

from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import Elbo
from natmix.files.arrays import read_arrays
from natmix.files.json_text import exact_json, parse_exact_json
from natmix.files.schema import SchemaError, conform
from natmix.files.seal import RESULT, DamagedFileError
from natmix.files.versions import versions
from natmix.gmmvi import GMMVI
from natmix.mixture import Mixture
from natmix.mixture.files import (
    built_mixture,
    check_names,
    mixture_shapes,
    mixture_tensors,
    save_arrays,
)
from natmix.modules.codenames import MODULES
from natmix.result.result import Counts, Result, Timings
from natmix.result.saved_model import MODEL, GivenModel, model_file, model_tensors, saved_model
from natmix.result.saved_searches import keep_diagnosis, loaded_verification, saved_searches

_SEARCHES = ("verification", "diagnosis")


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
        "versions": versions(),
        **saved_searches(result),
    }
    tensors = mixture_tensors(result.mixture)
    if result.start is not None:
        tensors |= _under("start", mixture_tensors(result.start))
    tensors |= _under("trajectory", result.trajectory)
    if result.draws is not None:
        tensors |= _under("draws", _draws_tensors(result.draws))
    tensors |= model_tensors(model)
    save_arrays(
        Path(path),
        RESULT,
        tensors,
        {
            "representation": result.mixture.covariance_family,
            "result": exact_json(header),
        },
    )


def load_result(path: str | Path, given: GivenModel, dtype: Any = None) -> Result:
    """`Result.load`."""
    path = Path(path)
    metadata, stored, _ = read_arrays(path, RESULT)
    family = metadata.get("representation", "")
    mixture = built_mixture(family, stored, dtype, path)
    with _naming(path):
        header = parse_exact_json(metadata.get("result", ""))
        saved = conform(SavedResult, {k: v for k, v in header.items() if k not in _SEARCHES}, "")
    start = None
    if saved["start"] is not None:
        start = built_mixture(saved["start"], _of("start", stored), mixture.dtype, path)
    algorithm = _algorithm(saved["algorithm"], path)
    _check_arrays(path, stored, mixture, family, start, saved)
    with _naming(path):
        _check_numbers(saved)
        draws = _draws(_of("draws", stored), mixture.dim)
        result = Result(
            mixture=mixture,
            elbo=saved["elbo"],
            trajectory=_trajectory(_of("trajectory", stored)),
            counts=saved["counts"],
            timings=saved["timings"],
            stopped=saved["stopped"],
            algorithm=algorithm,
            settings=saved["settings"],
            notes=tuple(saved["notes"]),
            draws=draws,
            start=None if start is None else jax.device_get(start),
            verification=loaded_verification(header, mixture.dim),
        )
        model = saved["model"]
        known = None if model is None else saved_model(model, stored, draws, mixture.dim)
        result = dataclasses.replace(result, model=known)
    loaded = given.joined(result)
    with _naming(path):
        keep_diagnosis(loaded, header)
    return loaded


class SavedResult(TypedDict):
    """What the header of a file holds as JSON, the searches left out."""

    elbo: Elbo
    counts: Counts
    timings: Timings
    stopped: str
    settings: dict[str, Any]
    notes: list[str]
    algorithm: dict[str, Any]
    start: str | None
    model: dict[str, Any] | None
    versions: dict[str, str]


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Whatever cannot be made of what a file holds is an error that names the file."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        what = str(error) if isinstance(error, SchemaError) else f"{type(error).__name__}: {error}"
        raise DamagedFileError(f"{path} is damaged: {what.removesuffix('.')}.") from error


def _check_arrays(
    path: Path,
    stored: Mapping[str, np.ndarray],
    mixture: Mixture,
    family: str,
    start: Mixture | None,
    saved: Mapping[str, Any],
) -> None:
    """Every array belongs to something."""
    known = set(mixture_shapes(family, 1, 1))
    if start is not None:
        if start.dim != mixture.dim:
            raise DamagedFileError(f"{path} is damaged: its start has {start.dim} dimensions.")
        known |= {f"start.{name}" for name in mixture_shapes(saved["start"], 1, 1)}
    groups = ("trajectory", "draws", *(() if saved["model"] is None else (MODEL,)))
    check_names(path, stored, known | {name for name in stored if name.split(".")[0] in groups})


def _check_numbers(saved: Mapping[str, Any]) -> None:
    for group in ("counts", "timings"):
        for name, value in dataclasses.asdict(saved[group]).items():
            if not value >= 0:
                raise SchemaError(f"{group}.{name} must not be negative, got {value}")
    elbo = saved["elbo"]
    for name in ("zero_share", "invalid_share"):
        value = getattr(elbo, name)
        if not (math.isnan(value) or 0 <= value <= 1):
            raise SchemaError(f"elbo.{name} must be from 0 to 1, got {value}")
    if elbo.samples < 0 or elbo.standard_error < 0:
        raise SchemaError("elbo.samples and elbo.standard_error must not be negative")


def _trajectory(stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    shapes = {value.shape for value in stored.values()}
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        raise SchemaError("the arrays of the trajectory are not equally long")
    return stored


def _draws_tensors(draws: EvaluatedDraws) -> dict[str, np.ndarray]:
    """The draws in the float type in which they were computed: float64 would add nothing."""
    arrays = {"x": draws.x, "log_target": draws.log_target, "log_mixture": draws.log_mixture}
    return {name: value.astype(draws.dtype) for name, value in arrays.items()}


def _draws(stored: dict[str, np.ndarray], dim: int) -> EvaluatedDraws | None:
    if not stored:
        return None
    if set(stored) != {"x", "log_target", "log_mixture"}:
        raise SchemaError(f"the draws have the arrays {', '.join(sorted(stored))}")
    N = stored["log_target"].size
    shapes = {"x": (N, dim), "log_target": (N,), "log_mixture": (N,)}
    types = {value.dtype for value in stored.values()}
    if any(stored[k].shape != shape for k, shape in shapes.items()) or len(types) > 1:
        raise SchemaError(f"the arrays of the draws do not belong to {N} points in {dim} dimensions")
    if min(types).kind != "f":
        raise SchemaError("the draws are no real numbers")
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
    try:
        modules = {m: {k: v for k, v in settings[m].items() if k != "option"} for m in MODULES}
        numbers = {name: settings[name] for name in ("temperature", "zero_penalty")}
        return GMMVI.from_codename(settings["codename"], **modules, **numbers)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} holds the result of an algorithm that this version of natmix does not have: {error}"
        ) from error
