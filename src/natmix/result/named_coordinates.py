"""The variables of a result by name, and the unconstrained coordinates that they belong to."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from natmix.models import AbstractModel
from natmix.models.scalar_maps import (
    ModelVariable,
    ScalarEntry,
    model_variables,
    values_by_name,
    vector_variable,
)
from natmix.text.suggestions import hint


@dataclasses.dataclass(frozen=True)
class Part:
    """Numbers asked for by one name: a variable, or one of its entries.

    Attributes:
        name: as it was asked for.
        shape: without the axis of samples.
        labels: of the entries.
        entries: None where an entry is not a function of one coordinate.
    """

    name: str
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    entries: tuple[ScalarEntry | None, ...]


class NamedCoordinates:
    """Variables by name over the coordinates of a mixture.

    Args:
        model: whose variables they are; None for vectors.
        dim: the number of coordinates.
    """

    def __init__(self, model: AbstractModel | None, dim: int) -> None:
        self.model, self.dim = model, dim
        self.variables: dict[str, ModelVariable] = (
            {"x": vector_variable(dim)} if model is None else model_variables(model)
        )

    def part(self, name: Any) -> Part:
        """What a name stands for.

        Raises:
            ValueError: nothing has this name.
        """
        variable = self.variables.get(name) if isinstance(name, str) else None
        if variable is not None:
            return Part(name, variable.shape, variable.labels, variable.entries)
        for variable in self.variables.values():
            if name in variable.labels:
                at = variable.labels.index(name)
                return Part(name, (), (name,), (variable.entries[at],))
        labels = [label for v in self.variables.values() for label in v.labels]
        known = [*self.variables, *(label for label in labels if label not in self.variables)]
        raise ValueError(f"There is no variable {name!r}. {hint(name, known)}")

    def known_part(self, name: Any) -> Part:
        """The same, all of whose entries are functions of one coordinate each.

        Raises:
            ValueError: they are not.
        """
        part = self.part(name)
        if any(entry is None for entry in part.entries):
            raise ValueError(
                f"{name} has no density in closed form, because its entries depend on several coordinates "
                "(a simplex, a covariance, an ordered vector, or computed from other variables): take draws, "
                f"result.sample(1000)[{name.partition('[')[0]!r}], or result.prob with a function."
            )
        return part

    def latent_parts(self, given: Iterable[int]) -> tuple[Part, ...]:
        """The latent variables without these coordinates; of a variable that loses some, its entries."""
        lost, parts = set(given), []
        latent = () if self.model is None else self.model.latent
        for name in latent or self.variables:
            part = self.part(name)
            left = [e is None or e.coordinate not in lost for e in part.entries]
            if all(left):
                parts.append(part)
            else:
                parts += [self.part(label) for label, stays in zip(part.labels, left, strict=True) if stays]
        return tuple(parts)

    def draws(self, z: Float[np.ndarray, "N D"]) -> dict[str, np.ndarray]:
        """All variables at unconstrained vectors."""
        return {"x": np.asarray(z)} if self.model is None else values_by_name(self.model, z)

    def conditions(self, given: Mapping[str, Any]) -> dict[int, float]:
        """The coordinates where variables have these values."""
        if not isinstance(given, Mapping) or not given:
            raise ValueError(
                f"Give the values by name, such as {{'{next(iter(self.variables))}': 0.5}}, got {given!r}."
            )
        found: dict[int, float] = {}
        for name, value in given.items():
            part = self.known_part(name)
            try:
                values = np.broadcast_to(np.asarray(value, float), part.shape).ravel()
            except (TypeError, ValueError):
                raise ValueError(
                    f"The value of {name} must be {_shaped(part.shape)}, got {value!r}."
                ) from None
            for label, entry, number in zip(part.labels, part.entries, values, strict=True):
                assert entry is not None
                z = float(entry.map.unconstrain(number))
                if not np.isfinite(z):
                    low, high = entry.map.support
                    raise ValueError(
                        f"{label} = {number:g} is not inside the support of {label}, ({low:g}, {high:g})."
                    )
                if entry.coordinate in found:
                    raise ValueError(f"{label} is given twice: it depends on the same coordinate as another.")
                found[entry.coordinate] = z
        return found

    def box(self, bounds: Mapping[str, Any]) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
        """The bounds of every coordinate where variables lie between these bounds."""
        low, high = np.full(self.dim, -np.inf), np.full(self.dim, np.inf)
        for name, pair in bounds.items():
            part = self.known_part(name)
            sides = _sides(name, pair, part.shape)
            for entry, below, above in zip(part.entries, *sides, strict=True):
                assert entry is not None
                ends = sorted(float(entry.map.unconstrain(v)) for v in _clipped(entry, below, above))
                d = entry.coordinate
                low[d], high[d] = max(low[d], ends[0]), min(high[d], ends[1])
        return low, high


def _clipped(entry: ScalarEntry, below: float, above: float) -> Float[np.ndarray, " 2"]:
    low, high = entry.map.support
    return np.clip([below, above], low, high)


def _sides(name: str, pair: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    try:
        first, second = pair
        low = np.broadcast_to(np.asarray(-np.inf if first is None else first, float), shape).ravel()
        high = np.broadcast_to(np.asarray(np.inf if second is None else second, float), shape).ravel()
    except (TypeError, ValueError):
        raise ValueError(
            f"The bounds of {name} must be a pair (low, high), each None or {_shaped(shape)}, got {pair!r}."
        ) from None
    if not np.all(low <= high):
        raise ValueError(f"The lower bound of {name} must not be above the upper one, got {pair!r}.")
    return low, high


def _shaped(shape: tuple[int, ...]) -> str:
    return "a number" if not shape else f"a number or an array of shape {list(shape)}"
