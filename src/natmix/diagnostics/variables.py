"""The variables whose modes and moments a verdict names: the model's own, or coordinates."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.models import AbstractModel
from natmix.models.base import coordinate_names
from natmix.models.structure import leaf_name

_SHOWN = 3
"""Variables of a position that are printed."""
_SHORT = 4
"""A point of so few coordinates without names is printed as a whole."""


@dataclasses.dataclass(frozen=True)
class Variables:
    """Variables at samples, number by number.

    Attributes:
        names: of all numbers, such as ``wave[0]``.
        values: at the samples.
        shapes: of the variables by name, in the order of the numbers.
        named: whether the names are the user's; otherwise they are ``x[0]`` and so on.
    """

    names: tuple[str, ...]
    values: Float[np.ndarray, "N C"]
    shapes: dict[str, tuple[int, ...]]
    named: bool

    def text(self, point: Float[np.ndarray, " C"], shown: np.ndarray | None = None) -> str:
        """A point by name: the numbers ``shown``, or the first ones."""
        if not self.named and len(point) <= _SHORT:
            return f"({', '.join(f'{v:.3g}' for v in point)})"
        chosen = np.arange(len(point))[:_SHOWN] if shown is None else shown[:_SHOWN]
        more = ", …" if len(chosen) < len(point) else ""
        return ", ".join(f"{self.names[i]} {point[i]:.3g}" for i in chosen) + more


def variables_at(model: AbstractModel | None, x: Float[np.ndarray, "N D"]) -> Variables:
    """The latent variables of the model at ``x``, constrained; coordinates where it has none to give."""
    if model is None:
        dim = x.shape[1]
        return Variables(tuple(f"x[{d}]" for d in range(dim)), x, {"x": (dim,)}, False)
    try:
        tree = model.constrain(jnp.asarray(x))
    except ValueError:  # a model from a file knows its variables at the saved samples only
        return Variables(tuple(model.coordinates), x, dict.fromkeys(model.coordinates, ()), True)
    leaves = {
        leaf_name(path) or "x": np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    if model.latent:
        leaves = {name: leaves[name] for name in model.latent if name in leaves} or leaves
    leaves = {name: part for whole in leaves.items() for name, part in real_parts(*whole)}
    labels = [label for name, leaf in leaves.items() for label in _labels(model, name, leaf.shape[1:])]
    columns = [leaf.reshape(len(x), math.prod(leaf.shape[1:])) for leaf in leaves.values()]
    shapes = {name: leaf.shape[1:] for name, leaf in leaves.items()}
    return Variables(tuple(labels), np.concatenate(columns, axis=1), shapes, True)


def real_parts(name: str, leaf: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """A variable by its real numbers: of a complex one there are two, named as Stan does."""
    if leaf.dtype.kind == "c":
        return [(f"{name}.real", leaf.real.astype(float)), (f"{name}.imag", leaf.imag.astype(float))]
    return [(name, leaf.astype(float))]


def _labels(model: AbstractModel, name: str, shape: tuple[int, ...]) -> list[str]:
    found = model.labels(name, shape)
    return found if len(found) == math.prod(shape) else coordinate_names(name, shape)
