"""The model of a result in a file, and the model given when it is loaded."""

import dataclasses
import warnings
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import target_log_density
from natmix.models import AbstractModel, as_model
from natmix.models.base import ModelFile
from natmix.models.front_ends import front_end_named
from natmix.models.saved import SavedModel
from natmix.result.result import Result
from natmix.targets import AbstractTarget, JaxTarget, as_target

_COMPARED = 16
"""The number of saved samples at which the model given on loading is compared."""


def model_file(result: Result) -> ModelFile | None:
    """What a file keeps of the model, if there is one."""
    if result.model is None:
        return None
    return result.model.to_file(None if result.draws is None else result.draws.x)


def model_tensors(file: ModelFile | None) -> dict[str, np.ndarray]:
    """Its arrays by name."""
    groups = {} if file is None else file.arrays
    return {f"{group}.{i}": value for group, values in groups.items() for i, value in enumerate(values)}


def saved_model(
    header: dict[str, Any], stored: Mapping[str, np.ndarray], draws: EvaluatedDraws | None
) -> AbstractModel:
    """The model as far as a file has it; one whose front end is not there is known by its samples."""
    x = np.zeros((0, len(header["coordinates"]))) if draws is None else draws.x
    front_end = front_end_named(header["kind"]) or SavedModel
    return front_end.from_file(ModelFile(header, _grouped(stored)), x)


def _grouped(stored: Mapping[str, np.ndarray]) -> dict[str, list[np.ndarray]]:
    """The arrays ``group.0``, ``group.1`` and so on of every group; those of a group without any are none."""
    found: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    parts = (name.rpartition(".") for name in stored)
    for group, number in sorted((group, int(last)) for group, _, last in parts if last.isdigit()):
        found[group].append(stored[f"{group}.{number}"])
    return found


@dataclasses.dataclass(frozen=True)
class GivenModel:
    """The model and its arguments given to `Result.load`, as to `natmix.fit`."""

    model: Any = None
    model_args: tuple[Any, ...] | None = None
    model_kwargs: dict[str, Any] | None = None
    position: Any = None
    bounds: Any = None

    def joined(self, result: Result) -> Result:
        """The result with its target and model, if they were given."""
        others = ("model_args", "model_kwargs", "position", "bounds")
        if self.model is None:
            extra = [name for name in others if getattr(self, name) is not None]
            if extra:
                raise ValueError(f"{extra[0]} describes a model: give the model too, as in model=model.")
            return result
        dim, dtype = result.mixture.dim, result.mixture.dtype
        model = self._model(result)
        target = self.model if model is None else model.target()
        if isinstance(target, AbstractTarget) and target.dim != dim:
            raise ValueError(f"The saved mixture has {dim} dimensions, the target given {target.dim}.")
        found = as_target(target, dim, dtype, np.asarray(result.mixture.mean(), float)).target
        _compare(result, found)
        return dataclasses.replace(result, model=model, target=found)

    def _model(self, result: Result) -> AbstractModel | None:
        saved = result.model
        plain = callable(self.model) and not isinstance(self.model, (AbstractModel, AbstractTarget))
        model: AbstractModel | None = None
        if saved is not None and plain and self.position is None and self.bounds is None:
            model = saved.with_function(self.model)
        if model is None:
            dim = result.mixture.dim if saved is None or saved.takes_dim else None
            given = (self.model_args, self.model_kwargs, self.position, self.bounds)
            model = as_model(self.model, dim, *given)
        of_file = None if saved is None else saved.coordinates
        of_model = None if model is None else model.coordinates
        if of_file != of_model:
            raise ValueError(
                f"The saved result has the coordinates {_some(of_file)}, the model given {_some(of_model)}: "
                "give what was fitted, with the same arguments."
            )
        return model


def _compare(result: Result, target: AbstractTarget) -> None:
    """Warn if a target's log density is not the one in the file."""
    if result.draws is None or (isinstance(target, JaxTarget) and target.stochastic):
        return
    x = result.draws.x[:_COMPARED].astype(result.mixture.dtype)
    now = np.asarray(target_log_density(target, jax.random.key(0), jax.numpy.asarray(x)), float)
    then = result.draws.log_target[:_COMPARED]
    if not np.allclose(now, then, rtol=1e-3, atol=1e-2, equal_nan=True):
        warnings.warn(
            "The model given has another log density at the saved samples than the model that was fitted: "
            "are its data the same? All further evaluations are of the model given.",
            stacklevel=5,
        )


def _some(names: tuple[str, ...] | None) -> str:
    if names is None:
        return "of a plain vector"
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
