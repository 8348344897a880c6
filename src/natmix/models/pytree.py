"""A log density of a pytree of arrays, with or without bounds."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.models.base import (
    AbstractModel,
    ModelFile,
    Points,
    PriorRegion,
    check_lengths,
    coordinate_names,
)
from natmix.models.bounded_target import BoundedTarget, OfVector
from natmix.models.bounds import Bounds, Constrained, position_inside
from natmix.models.given import Given
from natmix.models.structure import declared_names, decoded, encoded, leaf_name
from natmix.targets import AbstractTarget, AbstractTwoForms, HostTarget
from natmix.text.suggestions import meant


class PytreeModel(AbstractModel):
    """``fn`` takes a position of the same structure as the one given, as in BlackJAX.

    Args:
        fn: the log density of a position, or (log density, gradient), the gradient with the position's
            structure; or a `HostTarget`, if the position is a vector.
        position: a pytree of numbers and arrays: the structure, and the centre of the initial region.
        bounds: (low, high) for the position as a whole, or for some of its variables by name (the path
            in the tree, ``"a"`` or ``"a/b"``).

    Attributes:
        first: the position given.
        names: of its variables.
    """

    takes_dim: ClassVar[bool] = True

    @classmethod
    def recognises(cls, given: Given) -> bool:
        """Anything with a position or bounds."""
        return given.position is not None or given.bounds is not None

    @classmethod
    def from_given(cls, given: Given) -> Self:
        """Without a position: a vector, or numbers by name, inside the bounds."""
        if isinstance(given.target, AbstractTarget) and not isinstance(given.target, HostTarget):
            kind = type(given.target).__name__
            raise ValueError(
                f"With position or bounds give the function itself, or a HostTarget, not a {kind}."
            )
        if not isinstance(given.target, HostTarget) and not given.is_function:
            raise ValueError("With position or bounds the target must be a function of a position.")
        position = given.position
        if position is None:
            dim = given.dim
            if dim is None and isinstance(given.target, HostTarget) and not isinstance(given.bounds, dict):
                dim = given.target.dim
            position = position_inside(dim, given.bounds)
        return cls(given.target, position, given.bounds)

    def __init__(self, fn: Callable[[Any], Any] | HostTarget, position: Any, bounds: Any = None) -> None:
        leaves = jax.tree_util.tree_leaves_with_path(position)
        if not leaves:
            raise ValueError("The position is empty: give a pytree of numbers or arrays, such as {'x': 0.0}.")
        names = [leaf_name(path) for path, _ in leaves]
        shapes = [np.shape(leaf) for _, leaf in leaves]
        for name, (_, leaf) in zip(names, leaves, strict=True):
            if not np.issubdtype(np.asarray(leaf).dtype, np.floating) and not _is_whole_number(leaf):
                kind = np.asarray(leaf).dtype
                raise ValueError(f"{name or 'The position'} must hold real numbers, got {kind}.")
        tree = jax.tree.map(lambda a: jnp.asarray(a, jnp.result_type(float)), position)
        flat, self._unravel = ravel_pytree(tree)
        self._structure = jax.tree.structure(tree)
        self._is_flat = len(shapes) == 1 and len(shapes[0]) == 1
        self.first, self.names, self._shapes = position, names, shapes
        self.variables = tuple(declared_names(position))
        self._given = fn
        self._dtype = flat.dtype
        self.dim = int(flat.size)
        self._fn: Callable[[Any], Any] = fn.fn if isinstance(fn, HostTarget) else fn
        self._host = fn if isinstance(fn, HostTarget) else None
        if self._host is not None:
            self._check_host_target(self._host)
        self.coordinates = tuple(
            c for name, shape in zip(names, shapes, strict=True) for c in coordinate_names(name or "x", shape)
        )
        self._bounds = _joined(bounds, names, shapes)
        self._centre = np.asarray(flat, float)
        if not np.all(np.isfinite(self._centre)):
            first = int(np.argmin(np.isfinite(self._centre)))
            raise ValueError(
                f"The position must hold finite numbers, but {self.coordinates[first]} is "
                f"{self._centre[first]:g}."
            )
        outside = (self._centre <= self._bounds.low) | (self._centre >= self._bounds.high)
        if outside.any():
            first = int(np.argmax(outside))
            low, high = self._bounds.low[first], self._bounds.high[first]
            raise ValueError(
                f"The position must lie inside the bounds, but {self.coordinates[first]} is "
                f"{self._centre[first]:g}, not in ({low:g}, {high:g})."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return PytreeModel, (self._given, self.first, self.bounds)

    @property
    def bounds(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Of every variable, by name."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        sides = (np.split(side, ends) for side in self._bounds)
        parts = zip(self.names, self._shapes, *sides, strict=True)
        return {name: (low.reshape(shape), high.reshape(shape)) for name, shape, low, high in parts}

    def _check_host_target(self, target: HostTarget) -> None:
        if not self.is_vector:
            raise ValueError(
                "A HostTarget is a function of vectors: give its bounds as a pair (low, high) and its "
                "position as a vector, or give the function of a position itself."
            )
        if type(target).call is not HostTarget.call:
            raise ValueError(
                f"Bounds are for functions and a plain HostTarget, not for a {type(target).__name__}."
            )
        if target.dim != self.dim:
            raise ValueError(f"The position has {self.dim} numbers, but the target has dim={target.dim}.")

    def target(self) -> Any:
        """A function that JAX may trace; where it cannot, points are transformed in NumPy, many at once."""
        if self._host is not None:
            return _bounded(self._host, self)
        return _BoundedFunction(self)

    def log_density(self, x: Float[Array, " D"]) -> Scalar:
        """Of a concrete point, where JAX cannot trace the function."""
        if self._host is not None:
            value: Any = self.target().call(np.asarray(x, float)[None], False)[0][0]
            return value
        x = jnp.asarray(x)
        value = self._fn(self._one(x))
        return (value[0] if _is_pair(value) else value) + self._bounds.log_jacobian(x)

    def with_gradient(self, x: Float[Array, " D"]) -> Any:
        """The log density, with its gradient if the function returns one: what JAX traces."""
        x = jnp.asarray(x)
        position = self._one(x)
        value = self._fn(position)
        if not _is_pair(value):
            return value + self._bounds.log_jacobian(x)
        value, gradient = value
        structure: Any = jax.tree.structure(gradient)
        if structure != self._structure:
            raise ValueError(f"the gradient must have the structure of the position, {self._structure}")
        gradient = jax.tree.map(lambda g, p: jnp.asarray(g, p.dtype), gradient, position)
        log_jacobian, slope = jax.value_and_grad(self._bounds.log_jacobian)(x)
        return value + log_jacobian, jax.vjp(self._one, x)[1](gradient)[0] + slope

    @property
    def of_vector(self) -> OfVector:
        """The function of one constrained vector, in NumPy."""
        return OfVector(self._fn, self.first)

    @property
    def constrained(self) -> Callable[[np.ndarray], Constrained]:
        """The transformation of many vectors in NumPy."""
        return self._bounds.constrained

    def position(self, x: Float[Array, " D"]) -> Any:
        """The position of one vector."""
        return self._one(jnp.asarray(x))

    def _one(self, x: Float[Array, " D"]) -> Any:
        return self._unravel(self._bounds.constrain(x).astype(self._dtype))

    def constrain(self, x: Points) -> Any:
        return jax.tree.map(np.asarray, jax.vmap(self._one)(jnp.asarray(x)))

    def free(self, x: Points) -> dict[str, np.ndarray]:
        """The leaves by name, unconstrained."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1]
        parts = zip(self.names, self._shapes, np.split(np.asarray(x), ends, axis=1), strict=True)
        return {name or "x": part.reshape(len(part), *shape) for name, shape, part in parts}

    @property
    def is_vector(self) -> bool:
        """Whether a position is one vector, not a tree of variables."""
        return jax.tree_util.treedef_is_leaf(self._structure) and self._is_flat

    def inside(self, x: Float[np.ndarray, "*N D"]) -> Bool[np.ndarray, "*N"]:
        """Which vectors lie strictly within the bounds; NaN counts as within."""
        return ~np.any((x <= self._bounds.low) | (x >= self._bounds.high), axis=-1)

    def unconstrain_vectors(self, x: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N D"]:
        """From within the bounds, if a position is one vector."""
        if not self.is_vector:
            return x
        outside = ~self.inside(x)
        if outside.any():
            raise ValueError(
                f"{np.mean(outside):.1%} of the draws are not within the bounds: give vectors as "
                "result.sample returns them, not unconstrained ones."
            )
        return np.asarray(self.unconstrain(x.reshape(-1, x.shape[-1]))).reshape(x.shape)

    def unconstrain(self, values: Any) -> Points:
        """Unconstrained vectors of positions, whose leaves have samples first."""
        structure: Any = jax.tree.structure(values)
        if structure != self._structure:
            raise ValueError(
                f"The draws must have the structure of the position, {self._structure}, got {structure}."
            )
        leaves = jax.tree_util.tree_leaves_with_path(values)
        check_lengths({leaf_name(path) or "the position": leaf for path, leaf in leaves})
        tree = jax.tree.map(lambda a: jnp.asarray(a, self._dtype), values)
        flat = np.asarray(jax.vmap(lambda one: ravel_pytree(one)[0])(tree), float)
        if flat.shape[1:] != (self.dim,):
            raise ValueError(f"The draws have {flat.shape[1]} numbers each, the position {self.dim}.")
        return self._bounds.unconstrain(flat)

    def start(self, key: PRNGKey) -> PriorRegion | None:
        """Around the position given, with standard deviation 1."""
        return PriorRegion(self._bounds.unconstrain(self._centre), np.ones(self.dim))

    def to_file(self, x: Points | None) -> ModelFile:
        """Structure, position and bounds: everything but the function."""
        low, high = zip(*self.bounds.values(), strict=True)
        header = {
            "kind": self.kind,
            "coordinates": list(self.coordinates),
            "names": self.names,
            "structure": encoded(self.first),
            "variables": list(self.variables),
        }
        leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(self.first)]
        return ModelFile(header, {"position": leaves, "low": list(low), "high": list(high)})

    @classmethod
    def from_file(cls, file: ModelFile, x: Float[np.ndarray, "N D"]) -> "PytreeModel":
        """Without its log density; a pytree of the user's own classes is a dictionary of its leaves."""
        names, structure = file.header["names"], file.header["structure"]
        leaves = file.arrays["position"]
        sides = zip(file.arrays["low"], file.arrays["high"], strict=True)
        position = dict(zip(names, leaves, strict=True)) if structure is None else decoded(structure, leaves)
        model = cls(_no_density, position, dict(zip(names, sides, strict=True)))
        model.variables = tuple(file.header.get("variables", model.variables))
        return model

    def with_function(self, target: Any) -> "PytreeModel":
        """With a log density of the same position."""
        model = PytreeModel(target, self.first, self.bounds)
        model.variables = self.variables
        return model


class _BoundedFunction(AbstractTwoForms):
    """The log density of a model's unconstrained vectors; two of the same model are equal."""

    def __init__(self, model: PytreeModel) -> None:
        self._model = model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BoundedFunction) and other._model is self._model

    def __hash__(self) -> int:
        return hash(self._model)

    def __call__(self, x: Float[Array, " D"]) -> Any:
        return self._model.with_gradient(x)

    def on_host(self, x: Float[np.ndarray, " D"]) -> Any:
        return self._model.of_vector(self._model.constrained(x[None]).x[0])

    def host_target(self, *, batched: bool, returns_gradient: bool) -> HostTarget:
        model = self._model
        return BoundedTarget(
            fn=model.of_vector,
            dim=model.dim,
            batched=batched,
            returns_gradient=returns_gradient,
            constrained=model.constrained,
        )


def _bounded(target: HostTarget, model: PytreeModel) -> BoundedTarget:
    """A target of constrained vectors as one of unconstrained ones."""
    fields = {f.name: getattr(target, f.name) for f in dataclasses.fields(HostTarget)}
    return BoundedTarget(**fields, constrained=model.constrained)


def _is_pair(output: Any) -> bool:
    return isinstance(output, (tuple, list)) and len(output) == 2


def _no_density(position: Any) -> NoReturn:
    """Stands for the log density, which is not in the file."""
    raise ValueError(
        "The log density is not part of a file: give it when loading, natmix.Result.load(path, model=fn)."
    )


def _is_whole_number(leaf: Any) -> bool:
    return isinstance(leaf, (int, np.integer)) and not isinstance(leaf, bool)


def _joined(bounds: Any, names: list[str], shapes: list[tuple[int, ...]]) -> Bounds:
    """One pair of bounds for all entries."""
    if not isinstance(bounds, dict):
        given = dict.fromkeys(names, bounds) if bounds is not None else {}
        if bounds is not None and len(names) > 1:
            raise ValueError(f"Give bounds by name, as a dictionary; the names are {', '.join(names)}.")
    else:
        given = bounds
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(
            f"There are bounds for {unknown[0]!r}, but the variables are {', '.join(names)}."
            f"{meant(unknown[0], names)}"
        )
    parts = [
        Bounds.build(given.get(name, (None, None)), shape, name or "the position")
        for name, shape in zip(names, shapes, strict=True)
    ]
    return Bounds(np.concatenate([p.low for p in parts]), np.concatenate([p.high for p in parts]))
