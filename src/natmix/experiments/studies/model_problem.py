"""A user's own model as a problem of a study: found by its import path, ``module:function``."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from natmix.checks import float_type
from natmix.experiments.problems.base import InitialRegion, Problem
from natmix.initialization.arguments import StartArguments
from natmix.initialization.region import Region
from natmix.models import AbstractModel, as_model
from natmix.targets import AbstractTarget, JaxTarget, as_target
from natmix.text.suggestions import hint


class ModelSource(NamedTuple):
    """Where a model is, and what `natmix.fit` would be told beside it.

    Attributes:
        path: "module:function" or "folder/file.py:function".
        folder: where modules and files are looked for first.
        dim: as in `natmix.fit`.
        init_mean: likewise.
        init_scale: likewise.
        arguments: with which the function is called to get the target; None if it is the target.
    """

    path: str
    folder: str = "."
    dim: int | None = None
    init_mean: float | tuple[float, ...] | None = None
    init_scale: float | tuple[float, ...] | None = None
    arguments: dict[str, Any] | None = None

    @property
    def function(self) -> str:
        """The name of the function."""
        return self.path.rpartition(":")[2]


def load_model(source: ModelSource, name: str, options: Mapping[str, Any], dtype: str) -> Problem:
    """The model as a problem.

    The function is called, with ``source.arguments`` and ``options``, if there are some of them or if it
    takes no arguments; what it returns is the target then, or a `Problem`. Otherwise it is the target itself.
    A target is anything `natmix.fit` takes that JAX can trace.
    """
    found = _found(source)
    if isinstance(found, Problem):
        return found
    region = Region(_numbers(source.init_mean), _numbers(source.init_scale))
    target = found
    if source.arguments is not None or options or _takes_nothing(found):
        if not callable(found):
            raise ValueError(f"{source.path} is no function, so it takes no arguments.")
        target = found(**(source.arguments or {}), **options)
        if isinstance(target, Problem):
            return target
    model = as_model(target, source.dim)
    arguments = StartArguments.checked(region, None, None, None, None, None, float_type(dtype), model, 0)
    known = target if model is None else model.target()
    try:
        dim = arguments.dimension(source.dim, known, model)
        probe = arguments.in_region(dim, jax.random.key(0)).mixture.mean()
        reached = as_target(known, dim, arguments.dtype, probe=np.asarray(probe)).target
    except ValueError as error:
        raise ValueError(f"{source.path}: {error}") from error
    if not isinstance(reached, JaxTarget):
        raise ValueError(
            f"{source.path} cannot be traced by JAX; a study runs targets inside JAX alone. Write it with "
            "jax.numpy, or tune natmix.fit yourself."
        )
    start = InitialRegion.build(
        dim,
        arguments.region.centre(dim),
        np.sqrt(_variances(arguments.region, dim)),
        _variances(arguments.region, dim),
    )
    return Problem(name=name, title=source.path, target=reached, reference=reached, start=start)


def is_made_by_call(source: ModelSource) -> bool:
    """Whether the function is called to get the target."""
    return source.arguments is not None or _takes_nothing(_found(source))


def _variances(region: Region, dim: int) -> np.ndarray:
    scale = 1.0 if region.scale is None else region.scale
    return np.broadcast_to(np.asarray(scale, float) ** 2, (dim,))


def _numbers(value: float | tuple[float, ...] | None) -> Any:
    return None if value is None else np.asarray(value, float)


def _takes_nothing(found: Any) -> bool:
    """Whether it is a function that can be called without arguments."""
    if not callable(found) or isinstance(found, (AbstractTarget, AbstractModel)):
        return False
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not p.empty or p.kind in kinds for p in parameters)


def _found(source: ModelSource) -> Any:
    where, colon, name = source.path.rpartition(":")
    if not colon or not where or not name:
        raise ValueError(f"A model is named module:function or file.py:function, got {source.path!r}.")
    module = _module(where, source)
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise ValueError(f"{where} has no {name!r}. {hint(name, public)}")
    return getattr(module, name)


def _module(where: str, source: ModelSource) -> ModuleType:
    folder = str(Path(source.folder).resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if where.endswith(".py"):
        return _from_file(Path(folder, where))
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and where.split(".")[0] != error.name.split(".")[0]:
            raise
        raise ValueError(
            f"There is no module {where!r}, of {source.path!r}, in {folder} or installed."
        ) from error


def _from_file(path: Path) -> ModuleType:
    name = f"natmix_model_{path.stem}_{abs(hash(path.resolve()))}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(2, "there is no such file", str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
