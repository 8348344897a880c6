"""Variables whose entries are each a monotone function of one unconstrained coordinate."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, log_expit

from natmix.models.base import AbstractModel, coordinate_names
from natmix.models.structure import leaf_name

_ROWS = 256
"""Coordinates moved in one call of the model."""
_MOVED = 0.7
_PROBES = (0.0, -1.0, 1.0, -3.0, 3.0, -7.0, 7.0)
_ROUNDING = 64
"""Units of rounding within which two numbers are the same."""
_FEWEST_POINTS = 10
_SAVED_ROUNDING = 1e-4
"""Relative error within which a transformation explains saved samples."""


class ScalarMap(NamedTuple):
    """y = offset + scale g(z) for one coordinate z; g is the identity, exp or the logistic function.

    Attributes:
        kind: "identity", "exp" or "logistic".
        offset: of y.
        scale: not zero; negative where y falls as z rises.
    """

    kind: str = "identity"
    offset: float = 0.0
    scale: float = 1.0

    def constrain(self, z: Any) -> Any:
        """The variable at the coordinate z."""
        with np.errstate(over="ignore"):
            return self.offset + self.scale * _FORMS[self.kind](np.asarray(z, float))

    def unconstrain(self, y: Any) -> Any:
        """The coordinate where the variable is y: infinite on a bound, NaN outside of the support."""
        share = (np.asarray(y, float) - self.offset) / self.scale
        if self.kind == "identity":
            return share
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(share) - np.log1p(-share) if self.kind == "logistic" else np.log(share)

    def log_slope(self, z: Any) -> Any:
        """Log |dy/dz|."""
        z = np.asarray(z, float)
        log_scale = math.log(abs(self.scale))
        if self.kind == "logistic":
            return log_scale + log_expit(z) + log_expit(-z)
        return log_scale + (z if self.kind == "exp" else np.zeros_like(z))

    @property
    def support(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        ends = [float(self.constrain(z)) for z in (-np.inf, np.inf)]
        return min(ends), max(ends)


_FORMS = {"identity": lambda z: z, "exp": np.exp, "logistic": expit}


class ScalarEntry(NamedTuple):
    """One number of a variable that depends on one coordinate."""

    coordinate: int
    map: ScalarMap


class ModelVariable(NamedTuple):
    """A variable of a model.

    Attributes:
        name: by the model.
        shape: without the axis of samples.
        labels: names of its entries.
        entries: None for those that depend on several coordinates, or in another way.
    """

    name: str
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    entries: tuple[ScalarEntry | None, ...]

    @property
    def known(self) -> bool:
        """Whether all entries are functions of one coordinate each."""
        return all(entry is not None for entry in self.entries)


def vector_variable(dim: int) -> ModelVariable:
    """The variable x of a function of vectors."""
    entries = tuple(ScalarEntry(i, ScalarMap()) for i in range(dim))
    return ModelVariable("x", (dim,), tuple(coordinate_names("x", (dim,))), entries)


def model_variables(model: AbstractModel) -> dict[str, ModelVariable]:
    """The variables of a model by name, in its order, with what is known of their entries.

    Coordinates are moved one at a time to see which entries follow. The transformations found are those that
    agree with the model at all of several points.
    """
    base = np.random.default_rng(0).uniform(-0.5, 0.5, model.dim)
    follows, counts = _dependence(model, base)
    probes = np.repeat(np.array(_PROBES)[:, None], model.dim, axis=1)
    at = values_by_name(model, probes)
    out: dict[str, ModelVariable] = {}
    start = 0
    for name, value in at.items():
        shape = value.shape[1:]
        size = math.prod(shape)
        columns = value.reshape(len(_PROBES), size)
        maps = [
            _fitted(columns[:, i]) if counts[start + i] == 1 and columns.dtype.kind == "f" else None
            for i in range(size)
        ]
        entries = tuple(
            None if found is None else ScalarEntry(int(follows[start + i]), found)
            for i, found in enumerate(maps)
        )
        out[name] = ModelVariable(name, shape, tuple(model.labels(name, shape)), entries)
        start += size
    return out


def values_by_name(model: AbstractModel, x: Float[np.ndarray, "N D"]) -> dict[str, np.ndarray]:
    """The model's own variables at unconstrained vectors, in the model's order."""
    tree = model.constrain(jax.numpy.asarray(x))
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    found = {leaf_name(path) or "x": np.asarray(leaf) for path, leaf in leaves}
    return in_order(model, found)


def in_order(model: AbstractModel | None, values: dict[str, Any]) -> dict[str, Any]:
    """Variables in the order of the model: the latent ones, then those computed from them."""
    known = () if model is None else (*model.latent, *model.variables)
    first = {name: values[name] for name in known if name in values}
    return first | {name: value for name, value in values.items() if name not in first}


def _dependence(
    model: AbstractModel, base: Float[np.ndarray, " D"]
) -> tuple[Int[np.ndarray, " M"], Int[np.ndarray, " M"]]:
    """For every number of the model the last coordinate that it depends on, and how many there are."""
    rows = min(_ROWS, model.dim)
    first = np.zeros(0)
    follows, counts = np.zeros(0, int), np.zeros(0, int)
    for begin in range(0, model.dim, rows):
        moved = np.arange(begin, min(begin + rows, model.dim))
        x = np.repeat(base[None], rows + 1, axis=0)  # as many rows each time, which compiles once
        x[1 + np.arange(len(moved)), moved] += _MOVED
        named = values_by_name(model, x)
        values, eps = _flat(named), max(_eps(value) for value in named.values())
        if not begin:
            first = values[0]
            follows, counts = np.zeros(len(first), int), np.zeros(len(first), int)
        with np.errstate(invalid="ignore"):
            same = np.abs(values[1 : 1 + len(moved)] - first) <= _ROUNDING * eps * np.abs(first)
        for row, coordinate in zip(~same, moved, strict=True):
            follows[row], counts[row] = coordinate, counts[row] + 1
    return follows, counts


def _flat(values: dict[str, np.ndarray]) -> np.ndarray:
    columns = [value.reshape(len(value), math.prod(value.shape[1:])) for value in values.values()]
    return np.concatenate(columns, axis=1)


def _eps(values: np.ndarray) -> float:
    return float(np.finfo(values.dtype).eps) if values.dtype.kind in "fc" else float(np.finfo(np.float32).eps)


def _fitted(values: Float[np.ndarray, " P"]) -> ScalarMap | None:
    """The transformation with these values at the probes, if it is one of those known."""
    eps, y, z = _ROUNDING * _eps(values), np.asarray(values, float), np.array(_PROBES)
    if not np.all(np.isfinite(y)):
        return None
    zero, below, above = y[:3]
    for kind, form in _FORMS.items():
        g = form(z)
        scale = (above - below) / (g[2] - g[1])
        offset = zero - scale * g[0]
        size = abs(zero) + abs(scale)
        found = ScalarMap(kind, _plain(offset, eps * size), _plain(scale, eps * size))
        if found.scale and np.all(np.abs(found.constrain(z) - y) <= eps * (np.abs(y) + size)):
            return found
    return None


def map_through(z: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> ScalarMap | None:
    """The transformation that leads from samples z of a coordinate to y, if one of those known does."""
    if len(z) < _FEWEST_POINTS or not np.all(np.isfinite(y)) or not np.ptp(z) > 0:
        return None
    for kind, form in _FORMS.items():
        with np.errstate(over="ignore"):
            g = form(np.asarray(z, float))
        if not np.all(np.isfinite(g)):
            continue
        design = np.stack([np.ones_like(g), g / np.abs(g).max()], axis=1)
        (offset, scale), *_ = np.linalg.lstsq(design, y, rcond=None)
        scale /= np.abs(g).max()
        error = _SAVED_ROUNDING * (np.abs(y).max() + np.ptp(y))
        size = abs(offset) + abs(scale)
        found = ScalarMap(kind, _plain(float(offset), 1e-4 * size), _plain(float(scale), 1e-4 * size))
        if found.scale and np.all(np.abs(found.constrain(z) - y) <= error):
            return found
    return None


def _plain(value: float, error: float) -> float:
    """The number with four digits that rounding cannot tell from this one, if there is one."""
    if abs(value) <= error:
        return 0.0
    short = float(f"{value:.4g}")
    return short if abs(short - value) <= error else float(value)
