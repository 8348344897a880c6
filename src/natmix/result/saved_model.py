"""The model of a result in a file, and the model given when it is loaded."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

import jax
import numpy as np

from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import target_log_density
from natmix.models import AbstractModel, PytreeModel, as_model
from natmix.models.pytree import leaf_name
from natmix.models.saved import SavedModel
from natmix.models.structure import decoded, encoded
from natmix.result.result import Result
from natmix.targets import AbstractTarget, JaxTarget, as_target

_COMPARED = 16
"""The number of saved samples at which the model given on loading is compared."""


def model_header(result: Result) -> dict[str, Any]:
    """The part of a model that the JSON header holds."""
    model = result.model
    if isinstance(model, PytreeModel):
        return {
            "kind": "PytreeModel",
            "coordinates": list(model.coordinates),
            "names": model.names,
            "structure": encoded(model.first),
        }
    assert model is not None
    tree = None if result.draws is None else model.constrain(result.draws.x)
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        "kind": model.kind if isinstance(model, SavedModel) else type(model).__name__,
        "coordinates": list(model.coordinates),
        "names": [leaf_name(path) for path, _ in leaves],
        "structure": encoded(tree),
        "latent": list(model.latent),
        "observed": list(model.observed),
        "dims": {name: list(axes) for name, axes in model.dims.items()},
        "coords": {name: _labels(values) for name, values in model.coords.items()},
    }


def model_tensors(result: Result) -> dict[str, np.ndarray]:
    """The arrays of a model in a file."""
    model = result.model
    if model is None:
        return {}
    if isinstance(model, PytreeModel):
        leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(model.first)]
        low, high = zip(*model.bounds.values(), strict=True)
        groups: dict[str, list[np.ndarray]] = {"position": leaves, "low": list(low), "high": list(high)}
    else:
        tree = None if result.draws is None else model.constrain(result.draws.x)
        groups = {
            "variables": [np.asarray(leaf) for leaf in jax.tree.leaves(tree)],
            "observed": [np.asarray(value) for value in model.observed.values()],
        }
    for name, value in zip(model.observed, groups.get("observed", []), strict=False):
        if value.dtype.kind not in "fiub":
            raise ValueError(f"The data {name!r} are not numbers ({value.dtype}), and cannot be saved.")
    return {f"{group}.{i}": value for group, values in groups.items() for i, value in enumerate(values)}


def saved_model(
    header: dict[str, Any], stored: Mapping[str, np.ndarray], draws: EvaluatedDraws | None
) -> AbstractModel:
    """The model as far as the file describes it."""

    def arrays(group: str, number: int) -> list[np.ndarray]:
        return [stored[f"{group}.{i}"] for i in range(number)]

    names = header["names"]
    if header["kind"] == "PytreeModel":
        leaves, low, high = (arrays(group, len(names)) for group in ("position", "low", "high"))
        structure, bounds = header["structure"], list(zip(low, high, strict=True))
        if structure is None:  # of the user's own classes, which only code can rebuild
            return PytreeModel(
                no_density, dict(zip(names, leaves, strict=True)), dict(zip(names, bounds, strict=True))
            )
        return PytreeModel(no_density, decoded(structure, leaves), dict(zip(names, bounds, strict=True)))
    leaves = arrays("variables", len(names))
    by_name = dict(zip(names, leaves, strict=True))
    variables = by_name if header["structure"] is None else decoded(header["structure"], leaves)
    return SavedModel(
        header["kind"],
        header["coordinates"],
        np.zeros((0, len(header["coordinates"]))) if draws is None else draws.x,
        variables,
        dict(zip(header["observed"], arrays("observed", len(header["observed"])), strict=True)),
        header["dims"],
        header["coords"],
        header.get("latent", ()),
    )


def no_density(position: Any) -> NoReturn:
    """Stands for the log density, which is not in the file."""
    raise ValueError(
        "The log density is not part of a file: give it when loading, natmix.Result.load(path, model=fn)."
    )


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
                raise ValueError(f"{extra[0]} belongs to a model: give it too, as in model=model.")
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
        if isinstance(saved, PytreeModel) and plain and self.position is None and self.bounds is None:
            model: AbstractModel | None = PytreeModel(self.model, saved.first, saved.bounds)
        else:
            dim = result.mixture.dim if saved is None or isinstance(saved, PytreeModel) else None
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


def _labels(values: Any) -> list[Any]:
    """Numbers and text as they are, dates and others as text."""
    array = np.asarray(values)
    return array.tolist() if array.dtype.kind in "iufbU" else [str(v) for v in array]
