"""Targets outside JAX: NumPy, C++, a simulator."""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix._records import Evaluation
from natmix._types import Count, PRNGKey
from natmix.targets._base import AbstractTarget, TargetError, check_dim


class HostTarget(AbstractTarget):
    """A plain Python function, called on the host on exactly the samples needed.

    Attributes:
        fn: takes one point, a float64 NumPy array [D], or, if ``batched``, points [n, D].
        dim: D.
        batched: whether ``fn`` takes many points and returns as many values.
        returns_gradient: whether ``fn`` returns (value, gradient).
        gradient: a function of its own for the gradient, if there is one; called only when needed.
        executor: any `concurrent.futures.Executor` to evaluate on.
        batch_size: points per call of a batched ``fn``; all at once if left out (with an executor: a
            few batches per iteration, so that its workers share the work).
    """

    fn: Callable[..., Any] = eqx.field(static=True)
    dim: int = eqx.field(static=True, converter=check_dim)
    batched: bool = eqx.field(static=True, default=False)
    returns_gradient: bool = eqx.field(static=True, default=False)
    gradient: Callable[..., Any] | None = eqx.field(static=True, default=None)
    executor: Executor | None = eqx.field(static=True, default=None)
    batch_size: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}.")
        if self.returns_gradient and self.gradient is not None:
            raise ValueError("Give either returns_gradient=True or a gradient function, not both.")

    @property
    def has_gradient(self) -> bool:
        return self.returns_gradient or self.gradient is not None

    @property
    def inside_jax(self) -> bool:
        return False

    def evaluate(
        self, key: PRNGKey, x: Float[Array, "Q D"], count: Count | int, needs_gradient: bool
    ) -> Evaluation:
        n = int(count)
        points = np.asarray(x[:n], dtype=np.float64)
        value, slope = self.call(points, needs_gradient)
        padded = np.zeros(x.shape[0])
        padded[:n] = value
        if slope is None:
            return Evaluation(jnp.asarray(padded, x.dtype), None)
        slopes = np.zeros(x.shape)
        slopes[:n] = slope
        return Evaluation(jnp.asarray(padded, x.dtype), jnp.asarray(slopes, x.dtype))

    def call(self, points: np.ndarray, needs_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Values [n] and gradients [n, D] (if needed) at n points."""
        outputs = self._map(self.fn, points)
        if self.returns_gradient:
            values = _values([_part(o, 0) for o in outputs], points)
            slopes = [_part(o, 1) for o in outputs] if needs_gradient else None
        else:
            values = _values(outputs, points)
            slopes = self._map(self.gradient, points) if needs_gradient and self.gradient else None
        if slopes is None:
            return values, None
        return values, _array(slopes, points.shape, "gradients")

    def _map(self, fn: Callable[..., Any], points: np.ndarray) -> list[Any]:
        pieces: Iterable[np.ndarray] = points
        if self.batched:
            size = self.batch_size or (len(points) if self.executor is None else max(1, len(points) // 16))
            pieces = [points[i : i + size] for i in range(0, len(points), size)]
        run = map if self.executor is None else self.executor.map
        try:
            return list(run(fn, pieces))
        except Exception as error:
            raise TargetError(
                f"The target raised {type(error).__name__}: {error} (points are float64 arrays of shape "
                f"{'[n, ' if self.batched else '['}{self.dim}])."
            ) from error


def _part(output: Any, index: int) -> Any:
    if not isinstance(output, (tuple, list)) or len(output) != 2:
        raise TargetError(f"The target should return (log density, gradient), got {type(output).__name__}.")
    return output[index]


def _values(outputs: list[Any], points: np.ndarray) -> np.ndarray:
    return _array(outputs, points.shape[:1], "log densities")


def _array(outputs: list[Any], shape: tuple[int, ...], name: str) -> np.ndarray:
    try:
        pieces = [np.asarray(o, dtype=np.float64) for o in outputs]
        flat = np.concatenate([p.reshape(-1) for p in pieces]) if pieces else np.zeros(0)
    except (TypeError, ValueError) as error:
        raise TargetError(f"The target's {name} are not real numbers: {error}.") from error
    if flat.size != int(np.prod(shape)):
        raise TargetError(
            f"The target's {name} should have shape {list(shape)} for these points, got "
            f"{flat.size} numbers instead of {int(np.prod(shape))}."
        )
    return flat.reshape(shape)
