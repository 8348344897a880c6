"""Targets outside JAX: NumPy, C++, a simulator."""

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import Count, PRNGKey
from natmix.checks import as_int
from natmix.interrupts import user_code
from natmix.modules.records import Evaluation
from natmix.targets.base import AbstractTarget, TargetError, check_batch_size, check_dim
from natmix.targets.batch import CallCounts, Calls, How, Values
from natmix.targets.calls import Answer

_INFINITE = 1e30
"""A log density beyond this counts as infinite: -1e38 often stands for a density of zero."""


class HostTarget(AbstractTarget):
    """A plain Python function, called on the host on exactly the samples needed.

    A log density below -1e30 counts as -inf, a density of zero; one above 1e30 as +inf, which is excluded.

    Attributes:
        fn: takes one point, a float64 NumPy array [D], or, if ``batched``, points [n, D].
        dim: D.
        batched: whether ``fn`` takes many points and returns as many values.
        returns_gradient: whether ``fn`` returns (value, gradient).
        gradient: a separate function for the gradient, called only when it is needed.
        executor: any `concurrent.futures.Executor` to evaluate on.
        batch_size: points per call of a batched ``fn``, and per task of an executor or worker. If left out, a
            batched ``fn`` gets all points at once, or 64 tasks per iteration with an executor or workers; one
            of single points is a task per point, or of several points if a call takes less than 2.5 ms.
        workers: evaluate in so many processes of natmix's own, each of which gets ``fn`` once. One that
            hangs (``timeout``) or dies is replaced. With an executor: how many calls it makes at once.
        timeout: seconds per call. Without ``executor`` and ``workers``, the calls are made in one process of
            natmix's own, because a call in this one cannot be broken off. An executor's call that hangs is
            abandoned, and keeps its worker.
        retries: how often a call that hung or died is repeated; after that the point is excluded: its log
            density is NaN. An error that ``fn`` raises is not one of these, it ends the fit.
        journal: a folder to which every evaluation is written, and from which a later fit of the same target
            takes the points that it has (docs/files.md).
        calls: what the calls came to, and the processes behind them; shared by targets made of this one.
    """

    fn: Callable[..., Any] = eqx.field(static=True)
    dim: int = eqx.field(static=True, converter=check_dim)
    batched: bool = eqx.field(static=True, default=False)
    returns_gradient: bool = eqx.field(static=True, default=False)
    gradient: Callable[..., Any] | None = eqx.field(static=True, default=None)
    executor: Executor | None = eqx.field(static=True, default=None)
    batch_size: int | None = eqx.field(static=True, default=None)
    workers: int | None = eqx.field(static=True, default=None)
    timeout: float | None = eqx.field(static=True, default=None)
    retries: int = eqx.field(static=True, default=2)
    journal: str | Path | None = eqx.field(static=True, default=None)
    calls: Calls = eqx.field(static=True, default_factory=Calls, repr=False)

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
        if self.workers is not None:
            as_int(self.workers, "workers")
        as_int(self.retries, "retries", 0)
        if self.timeout is not None and not (_is_number(self.timeout) and self.timeout > 0):
            raise ValueError(f"timeout must be a positive number of seconds, got {self.timeout!r}.")
        if self.executor is not None and not callable(getattr(self.executor, "submit", None)):
            raise ValueError(
                f"executor must be a concurrent.futures.Executor, got {type(self.executor).__name__}."
            )

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
        value = np.where(np.abs(value) >= _INFINITE, np.copysign(np.inf, value), value)
        log_density = _padded(value, x.shape[:1], x.dtype)
        return Evaluation(log_density, None if gradient is None else _padded(gradient, x.shape, x.dtype))

    def call(self, points: np.ndarray, needs_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Values [n] and gradients [n, D] (if needed) at n points."""
        how = How(
            fn=self.fn,
            gradient=self.gradient,
            dim=self.dim,
            batched=self.batched,
            batch_size=self.batch_size,
            executor=self.executor,
            workers=self.workers,
            timeout=self.timeout,
            retries=self.retries,
            journal=self.journal,
            parse=self._parse,
        )
        found = self.calls.evaluate(how, points, needs_gradient and self.has_gradient)
        return found.values, found.gradients

    @property
    def counts(self) -> CallCounts:
        """What the calls came to so far, of this target and those made of it, such as with bounds."""
        return self.calls.counts

    def close(self) -> None:
        """End the processes of ``workers``; the next evaluation starts them again."""
        self.calls.close()

    # What it returned ---------------------------------------------------------------------------

    def _parse(self, answer: Answer, n: int, needs_gradient: bool) -> Values:
        """Values and gradients of n points, their shapes checked; gradients that come along are kept."""
        outputs, gradients = answer.values, answer.gradients
        if self.returns_gradient:
            pairs = [_pair(o) for o in ([outputs] if self.batched else outputs)]
            values, slopes = [v for v, _ in pairs], [g for _, g in pairs]
            outputs, gradients = (values[0], slopes[0]) if self.batched else (values, slopes)
        values_found = self._joined(outputs, n, (), "log density")
        if gradients is None or not (needs_gradient or self.journal is not None):
            return Values(values_found, None)
        return Values(values_found, self._joined(gradients, n, (self.dim,), "gradient"))

    def _joined(self, outputs: Any, n: int, row: tuple[int, ...], name: str) -> np.ndarray:
        """All outputs as one array [n, ...], their shapes checked."""
        if not self.batched:
            rows = [_real(o, name, n) for o in outputs]
            for r in rows:
                if r.size != int(np.prod(row)):
                    raise TargetError(_wrong(name, r.shape, row, "a point"), n)
            return np.array([r.reshape(row) for r in rows]).reshape(n, *row)
        block = _real(outputs, name, n)
        if block.shape not in ((n, *row), (n, 1, *row), (n, *row, 1)):
            raise TargetError(_wrong(name, block.shape, (n, *row), f"{n} points"), n)
        return block.reshape(n, *row)


def calls_so_far(target: AbstractTarget) -> CallCounts:
    """What the calls of a target outside JAX came to; nothing for others."""
    return target.counts if isinstance(target, HostTarget) else CallCounts()


def notes_on_calls(counts: CallCounts) -> list[str]:
    """What the user of a fit should know about its calls."""
    notes = []
    if counts.from_journal:
        notes.append(f"{counts.from_journal:,} evaluations were taken from the journal.")
    lost = [(counts.timed_out, "hung"), (counts.died, "died")]
    if any(number for number, _ in lost):
        words = " and ".join(f"{number:,} {what}" for number, what in lost if number)
        notes.append(f"Of the target's calls {words}; {counts.excluded:,} points were excluded after that.")
    return notes


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


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
