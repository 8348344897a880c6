"""Targets outside JAX: NumPy, C++, a simulator."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import Count, PRNGKey
from natmix.interrupts import Interrupted, user_code
from natmix.modules.records import Evaluation
from natmix.targets.base import AbstractTarget, TargetError, check_batch_size, check_dim

_TASKS = 64
"""Tasks per iteration for an executor, unless ``batch_size`` is given."""


class HostTarget(AbstractTarget):
    """A plain Python function, called on the host on exactly the samples needed.

    Attributes:
        fn: takes one point, a float64 NumPy array [D], or, if ``batched``, points [n, D].
        dim: D.
        batched: whether ``fn`` takes many points and returns as many values.
        returns_gradient: whether ``fn`` returns (value, gradient).
        gradient: a separate function for the gradient, called only when it is needed.
        executor: any `concurrent.futures.Executor` to evaluate on.
        batch_size: points per call of a batched ``fn``, and per task of an executor; if left out, all
            points at once, or with an executor a few dozen tasks per iteration.
    """

    fn: Callable[..., Any] = eqx.field(static=True)
    dim: int = eqx.field(static=True, converter=check_dim)
    batched: bool = eqx.field(static=True, default=False)
    returns_gradient: bool = eqx.field(static=True, default=False)
    gradient: Callable[..., Any] | None = eqx.field(static=True, default=None)
    executor: Executor | None = eqx.field(static=True, default=None)
    batch_size: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if not callable(self.fn):
            raise ValueError(f"The target must be a function of a point, got {type(self.fn).__name__}.")
        if self.gradient is not None and not callable(self.gradient):
            raise ValueError(
                f"The gradient must be a function of a point, got {type(self.gradient).__name__}."
            )
        if self.returns_gradient and self.gradient is not None:
            raise ValueError("Give either returns_gradient=True or a gradient function, not both.")
        if self.batch_size is not None:
            check_batch_size(self.batch_size)

    @property
    def has_gradient(self) -> bool:
        """Whether the target provides gradients."""
        return self.returns_gradient or self.gradient is not None

    @property
    def inside_jax(self) -> bool:
        """Whether JAX can trace it."""
        return False

    def evaluate(
        self, key: PRNGKey, x: Float[Array, "Q D"], count: Count | int, needs_gradient: bool
    ) -> Evaluation:
        """The log density, and its gradient if needed, at the first ``count`` points."""
        n = int(count)
        points = np.array(np.asarray(x)[:n], dtype=np.float64)
        with user_code():
            value, gradient = self.call(points, needs_gradient)
        log_density = _padded(value, x.shape[:1], x.dtype)
        return Evaluation(log_density, None if gradient is None else _padded(gradient, x.shape, x.dtype))

    def call(self, points: np.ndarray, needs_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Values [n] and gradients [n, D] (if needed) at n points."""
        outputs = self._map(self.fn, points)
        gradients = None
        if self.returns_gradient:
            pairs = [_pair(o) for o in outputs]
            outputs = [value for value, _ in pairs]
            gradients = [gradient for _, gradient in pairs] if needs_gradient else None
        elif needs_gradient and self.gradient is not None:
            gradients = self._map(self.gradient, points)
        values = self._joined(outputs, len(points), (), "log density")
        if gradients is None:
            return values, None
        return values, self._joined(gradients, len(points), (self.dim,), "gradient")

    # How it is called ---------------------------------------------------------------------------

    def _map(self, fn: Callable[..., Any], points: np.ndarray) -> list[Any]:
        """One output per point, or per batch of points; ``fn`` gets copies, which it may modify."""
        given = 0
        outputs: list[Any] = []
        try:
            if self.executor is not None:
                return self._map_on(self.executor, fn, points.copy())
            for piece in _pieces(points.copy(), (self.batch_size or len(points)) if self.batched else 1):
                given += len(piece)
                outputs.append(fn(piece if self.batched else piece[0]))
            return outputs
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise Interrupted(given) from None
        except _ExecutorError as error:
            raise self._error(error.error, error.evaluations) from error.error
        except Exception as error:
            raise self._error(error, given) from error

    def _map_on(self, executor: Executor, fn: Callable[..., Any], points: np.ndarray) -> list[Any]:
        pieces = _pieces(points, self.batch_size or -(-len(points) // _TASKS))
        task = fn if self.batched else _Each(fn)
        futures: list[Future] = []
        try:
            futures.extend(executor.submit(task, piece) for piece in pieces)
            outputs = [future.result() for future in futures]
        except BaseException as error:
            # Tasks that cannot be cancelled have been evaluated or will be.
            given = sum(len(p) for p, f in zip(pieces, futures, strict=False) if not f.cancel())
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(given) from None
            raise _ExecutorError(error, given) from error
        return outputs if self.batched else [o for piece in outputs for o in piece]

    def _error(self, error: BaseException, evaluations: int) -> TargetError:
        shape = f"[n, {self.dim}]" if self.batched else f"[{self.dim}]"
        message = f"The target raised {type(error).__name__}: {error} (it is given float64 arrays {shape})."
        return TargetError(message, evaluations)

    # What it returned ---------------------------------------------------------------------------

    def _joined(self, outputs: list[Any], n: int, row: tuple[int, ...], name: str) -> np.ndarray:
        """All outputs as one array [n, ...], their shapes checked."""
        if not self.batched:
            rows = [_real(o, name, n) for o in outputs]
            for r in rows:
                if r.size != int(np.prod(row)):
                    raise TargetError(_wrong(name, r.shape, row, "a point"), n)
            return np.array([r.reshape(row) for r in rows]).reshape(n, *row)
        size = self.batch_size or (n if self.executor is None else -(-n // _TASKS))
        blocks = []
        for i, output in enumerate(outputs):
            m = min(size, n - i * size)
            block = _real(output, name, n)
            if block.shape not in ((m, *row), (m, 1, *row), (m, *row, 1)):
                raise TargetError(_wrong(name, block.shape, (m, *row), f"{m} points"), n)
            blocks.append(block.reshape(m, *row))
        return np.concatenate(blocks) if blocks else np.zeros((n, *row))


class _ExecutorError(Exception):
    """An error on an executor, with the number of points it was given."""

    def __init__(self, error: BaseException, evaluations: int) -> None:
        super().__init__()
        self.error, self.evaluations = error, evaluations


class _Each:
    """A function of one point applied to several; it can be pickled for another process."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, points: np.ndarray) -> list[Any]:
        return [self.fn(p) for p in points]


def _pieces(points: np.ndarray, size: int) -> list[np.ndarray]:
    return [points[i : i + size] for i in range(0, len(points), max(size, 1))]


def _padded(values: np.ndarray, shape: tuple[int, ...], dtype: Any) -> Array:
    out = np.zeros(shape)
    out[: len(values)] = values
    with np.errstate(over="ignore"):  # -1e50 is -inf in float32, a density of zero
        return jnp.asarray(out.astype(dtype))


def _pair(output: Any) -> tuple[Any, Any]:
    if not isinstance(output, (tuple, list)) or len(output) != 2:
        raise TargetError(
            f"The target should return (log density, gradient), it returned {type(output).__name__}."
        )
    return output[0], output[1]


def _real(output: Any, name: str, evaluations: int) -> np.ndarray:
    """Real numbers as float64; text, complex numbers, booleans and None raise."""
    try:
        array = np.asarray(output)
        if array.dtype.kind in "fiu":
            return array.astype(np.float64)
        if array.dtype.kind == "O" and all(hasattr(v, "__float__") for v in array.flat):
            return array.astype(np.float64)
    except (TypeError, ValueError):
        pass
    kind = type(output).__name__
    what = f"{kind} of {array.dtype}" if isinstance(output, np.ndarray) else kind
    raise TargetError(f"The target's {name} must consist of real numbers, it returned {what}.", evaluations)


def _wrong(name: str, got: tuple[int, ...], wanted: tuple[int, ...], given: str) -> str:
    return f"The target's {name} must have shape {list(wanted)} for {given}, it returned shape {list(got)}."
