"""Draws of a target, as samplers, ArviZ and `natmix.Result.sample` give them, as unconstrained vectors."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from natmix.models.base import AbstractModel
from natmix.models.structure import leaf_name

_SAMPLE_AXES = ("chain", "draw", "sample")
"""Names that ArviZ gives to axes of draws; ``sample`` is the last axis of `arviz.extract`."""
_UNCHANGED = 1e-2
"""A draw is in the support if its transformation and back changes it by no more than this share."""


def draw_vectors(draws: Any, model: AbstractModel | None, dim: int | None) -> Float[np.ndarray, "C N D"]:
    """Vectors in the coordinates of a fit, chains first.

    Args:
        draws: for a model, its own variables by name: a dictionary of arrays [N, ...] or [C, N, ...], ArviZ's
            InferenceData or DataTree, PyMC's MultiTrace, or a pytree as the position is one. Or an array
            [N, D] or [C, N, D]: within the bounds of a vector that has some, otherwise unconstrained.
        model: whose variables they are; None for a function of vectors.
        dim: D, if it is known.

    Raises:
        ValueError: the draws do not belong to this target.
    """
    if model is not None and (isinstance(draws, Mapping) or not hasattr(draws, "ndim")):
        return _checked(_by_name(draws, model), model)
    x = _numbers(_alone(draws, dim), "the draws")
    if x.ndim == 1 and dim == 1:
        x = x[:, None]
    if x.ndim not in (2, 3) or dim not in (None, x.shape[-1]) or not x.size:
        D = "D" if dim is None else dim
        raise ValueError(
            f"The draws must have shape [N, {D}], or [C, N, {D}] for several chains, got {list(x.shape)}."
        )
    x = x[None] if x.ndim == 2 else x
    if np.isnan(x).any():
        raise ValueError(
            f"{np.mean(np.isnan(x).any(axis=2)):.1%} of the draws hold NaN: they are not finite."
        )
    return _checked(x if model is None else model.unconstrain_vectors(x), model)


def _alone(draws: Any, dim: int | None) -> Any:
    """The array of a function's draws, which ArviZ's containers have under the name x."""
    if isinstance(draws, Mapping):
        group = draws.get("posterior")
        if group is None or "x" not in group:
            D = "D" if dim is None else dim
            raise ValueError(
                f"Give the draws of a function as an array [N, {D}], got {type(draws).__name__}."
            )
        return _samples_first(group["x"])
    return draws


def _by_name(draws: Any, model: AbstractModel) -> Float[np.ndarray, "C N D"]:
    tree = model.constrain(np.zeros((1, model.dim)))
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    shapes = {leaf_name(path): np.shape(leaf)[1:] for path, leaf in leaves}
    wanted = model.latent or tuple(shapes)
    given = _given(draws, tree, wanted)
    arrays = {name: _numbers(given[name], name or "the draws") for name in wanted}
    lead = _lead(arrays, shapes)
    joined = {name: a.reshape(math.prod(lead), *shapes[name]) for name, a in arrays.items()}
    values = joined if model.latent else jax.tree_util.tree_unflatten(structure, list(joined.values()))
    x = np.asarray(model.unconstrain(values), float)
    _check_support(model, x, joined, wanted)
    return x.reshape(lead[0] if len(lead) == 2 else 1, lead[-1], model.dim)


def _given(draws: Any, tree: Any, wanted: tuple[str, ...]) -> dict[str, Any]:
    """The values of these variables, as they were given."""
    if hasattr(draws, "get_values") and hasattr(draws, "varnames"):  # PyMC's MultiTrace
        draws = {name: np.stack(draws.get_values(name, combine=False)) for name in draws.varnames}
    if not isinstance(draws, Mapping):
        leaves = jax.tree_util.tree_leaves_with_path(draws)
        structure: Any = jax.tree.structure(draws)
        if isinstance(tree, Mapping) or structure != jax.tree.structure(tree):
            raise ValueError(
                f"Give the draws by name, as a dictionary with {_few(wanted)}, got {type(draws).__name__}."
                if isinstance(tree, Mapping)
                else f"The draws must have the structure of the position, {jax.tree.structure(tree)}, got "
                f"{structure}."
            )
        return {leaf_name(path): leaf for path, leaf in leaves}
    if not isinstance(tree, Mapping):
        raise ValueError(f"The variables have no names: give the draws as {type(tree).__name__}.")
    if "posterior" in draws and "posterior" not in tree:
        draws = draws["posterior"]  # ArviZ's containers
    found = {name: _at(draws, name) for name in wanted}
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise ValueError(
            f"The draws do not have the model's variable {missing[0]!r}; they have "
            f"{_few(tuple(map(str, draws))) or 'none'}."
        )
    return {name: _samples_first(value) for name, value in found.items()}


def _at(draws: Any, name: str) -> Any:
    """The value under a name, under the name as ArviZ stores it, or under a path; None if there is none."""
    for key in (name, name.replace("/", ".")):
        if key in draws:
            return draws[key]
    inner = draws
    for part in name.split("/"):
        if not isinstance(inner, Mapping) or part not in inner:
            return None
        inner = inner[part]
    return inner


def _samples_first(value: Any) -> Any:
    """An array of xarray with its axes of draws in front."""
    dims = getattr(value, "dims", None)
    if not isinstance(dims, tuple) or not hasattr(value, "transpose"):
        return value
    front = [axis for axis in _SAMPLE_AXES if axis in dims]
    return value.transpose(*front, *[axis for axis in dims if axis not in front])


def _numbers(value: Any, name: str) -> Float[np.ndarray, "..."]:
    try:
        array = np.asarray(value)
        numbers = array.astype(float) if array.dtype.kind in "fiub" or array.dtype.kind == "V" else None
    except (TypeError, ValueError):
        numbers = None
    if numbers is None:
        raise ValueError(f"The draws must be arrays of real numbers, but {name} is {type(value).__name__}.")
    return numbers


def _lead(arrays: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """(N,) or (C, N), the same for all variables."""
    lead: tuple[int, ...] = ()
    for i, (name, array) in enumerate(arrays.items()):
        shape = shapes[name]
        own = array.shape[: array.ndim - len(shape)]
        what = name or "the position"
        if array.shape[len(own) :] != shape or len(own) not in (1, 2):
            text = "".join(f", {n}" for n in shape)
            raise ValueError(
                f"The draws of {what} must have shape [N{text}], or [C, N{text}] for several chains, got "
                f"{list(array.shape)}."
            )
        if i and own != lead:
            first = next(iter(arrays))
            raise ValueError(
                f"There must be as many draws of every variable, but {first} has {_counted(lead)} and {what} "
                f"{_counted(own)}."
            )
        lead = own
        if np.isnan(array).any():
            bad = np.isnan(array).reshape(math.prod(own), -1).any(axis=1)
            raise ValueError(f"{bad.sum():,} of the {bad.size:,} draws of {what} hold NaN; leave them out.")
    return lead


def _counted(lead: tuple[int, ...]) -> str:
    return f"{lead[0]}" if len(lead) == 1 else f"{lead[0]} chains of {lead[1]}"


def _check_support(
    model: AbstractModel, x: Float[np.ndarray, "N D"], given: dict[str, np.ndarray], names: tuple[str, ...]
) -> None:
    """Raise for draws outside the support: transformed to the real line and back they are not the same."""
    with np.errstate(all="ignore"):
        back = model.constrain(np.where(np.isfinite(x), x, 0.0))
        leaves = jax.tree_util.tree_leaves_with_path(back)
        again = {leaf_name(path): np.asarray(leaf, float) for path, leaf in leaves}
        for name in names:
            value = given[name].reshape(len(x), -1)
            moved = np.abs(again[name].reshape(len(x), -1) - value)
            spread = value.std(axis=0)
            off = ~np.all(moved <= _UNCHANGED * (np.abs(value) + np.where(np.isfinite(spread), spread, 0)), 1)
            if off.any():
                draw = int(np.argmax(off))
                numbers = ", ".join(f"{v:.4g}" for v in value[draw][:4])
                raise ValueError(
                    f"{off.sum():,} of {len(x):,} draws of {name or 'the position'} are not inside its "
                    f"support (draw {draw} is {numbers}{', …' if value.shape[1] > 4 else ''}): give the "
                    "model's own values, not unconstrained ones, and leave draws on the boundary out."
                )


def _checked(x: Float[np.ndarray, "C N D"], model: AbstractModel | None) -> Float[np.ndarray, "C N D"]:
    """The vectors, if they are finite."""
    bad = ~np.isfinite(x)
    if bad.any():
        d = int(np.argmax(bad.any(axis=(0, 1))))
        name = f"x[{d}]" if model is None else model.coordinates[d]
        raise ValueError(
            f"Some draws are not finite in unconstrained coordinates: {name} at "
            f"{bad.any(axis=2).mean():.1%} of them."
        )
    return x


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
