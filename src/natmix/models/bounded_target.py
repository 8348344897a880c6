"""Functions of bounded variables outside JAX, as targets of unconstrained vectors."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from natmix.models.bounds import Constrained
from natmix.targets import HostTarget


class BoundedTarget(HostTarget):
    """A `HostTarget` of constrained vectors; gradients follow by the chain rule.

    Attributes:
        constrained: the transformation of many points at once.
    """

    constrained: Callable[[np.ndarray], Constrained] = eqx.field(static=True, kw_only=True)

    def call(self, points: np.ndarray, needs_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        at = self.constrained(points)
        values, gradients = super().call(at.x, needs_gradient)
        if gradients is not None:
            gradients = gradients * at.slope + at.log_jacobian_gradient
        return values + at.log_jacobian, gradients


class OfVector:
    """A function of a position as one of its vector [D], with NumPy arrays for leaves.

    Args:
        fn: takes a position and returns the log density, or (log density, gradient), the gradient with the
            position's structure.
        position: one such position.
    """

    def __init__(self, fn: Callable[[Any], Any], position: Any) -> None:
        self._fn, self._position = fn, position
        leaves, self._structure = jax.tree.flatten(position)
        self._shapes = [np.shape(leaf) for leaf in leaves]
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in self._shapes)])
        self._slices = [slice(*pair) for pair in itertools.pairwise(ends)]

    def __reduce__(self) -> tuple[Any, ...]:
        return OfVector, (self._fn, self._position)

    def __call__(self, x: Float[np.ndarray, " D"]) -> Any:
        leaves = [
            x[part].reshape(shape) if shape else x[part.start]
            for part, shape in zip(self._slices, self._shapes, strict=True)
        ]
        output = self._fn(jax.tree.unflatten(self._structure, leaves))
        if isinstance(output, (tuple, list)) and len(output) == 2:
            return output[0], self._flat(output[1])
        return output

    def _flat(self, gradient: Any) -> Float[np.ndarray, " D"]:
        structure: Any
        leaves, structure = jax.tree.flatten(gradient)
        if structure != self._structure or [np.shape(leaf) for leaf in leaves] != self._shapes:
            raise ValueError(
                f"the gradient must have the structure and shapes of the position, {self._structure}"
            )
        return np.concatenate([np.ravel(leaf) for leaf in leaves])
