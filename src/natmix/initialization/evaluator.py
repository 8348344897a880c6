"""Evaluations of a target for methods on the host: values, gradients and Hessians in float64, counted."""

import contextlib
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import Count, PRNGKey
from natmix.interrupts import Interrupted
from natmix.kernels.compilation import Rest, parted, quick_array_jit, quick_jit
from natmix.kernels.plan import Plan, using
from natmix.kernels.transfer import on_device
from natmix.targets import AbstractTarget
from natmix.targets.failures import FAILURES, as_target_error

Points = Float[Array, "N D"] | Float[np.ndarray, "N D"]


class BudgetSpentError(Exception):
    """The budget of evaluations or of time is spent."""


class TargetEvaluator:
    """Evaluates a target at NumPy points, within a budget of evaluations and of seconds.

    The first evaluation, with its compilation, is made whatever the time.

    Attributes:
        evaluations: so far; a Hessian counts as one per dimension. Never more than ``max_evaluations``.
    """

    def __init__(
        self,
        target: AbstractTarget,
        key: PRNGKey,
        dtype: jnp.dtype,
        max_evaluations: int | None = None,
        max_seconds: float = float("inf"),
    ) -> None:
        self._target, self._key, self._dtype = target, key, dtype
        self._arrays, self._rest = parted((target, key))
        self._plan = Plan.of(self._arrays)
        self._max_evaluations = max_evaluations
        self._deadline = time.monotonic() + max_seconds
        self.evaluations = 0

    @contextlib.contextmanager
    def failures_counted(self) -> Iterator[None]:
        """An interrupt or an error of the target within tells how many evaluations were made."""
        try:
            yield
        except KeyboardInterrupt as error:
            raise Interrupted(self.evaluations) from error
        except FAILURES as error:
            failure = as_target_error(error)
            failure.evaluations = self.evaluations
            raise failure from error

    @property
    def remaining(self) -> float:
        """Evaluations that may still be made."""
        return float("inf") if self._max_evaluations is None else self._max_evaluations - self.evaluations

    @property
    def resolution(self) -> float:
        """The relative rounding error of a value."""
        return float(jnp.finfo(self._dtype).eps)

    def _spend(self, n: int) -> None:
        late = self.evaluations > 0 and time.monotonic() > self._deadline
        if n > self.remaining or late:
            raise BudgetSpentError
        self.evaluations += n

    def log_density(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """Log densities."""
        return self._evaluate(x, needs_gradient=False)[0]

    def with_gradient(
        self, x: Float[np.ndarray, "N D"]
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N D"]]:
        """Log densities and their gradients."""
        value, gradient = self._evaluate(x, needs_gradient=True)
        assert gradient is not None
        return value, gradient

    def hessian(self, x: Float[np.ndarray, " D"]) -> Float[np.ndarray, "D D"] | None:
        """The Hessian of the log density; None for a target outside JAX."""
        if not self._target.inside_jax:
            return None
        self._spend(len(x))
        return np.asarray(_hessian(self._target, self._key, on_device(x, self._dtype)), float)

    def _evaluate(
        self, x: Float[np.ndarray, "N D"], needs_gradient: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        n = len(x)
        self._spend(n)
        if self._target.inside_jax:
            padded = np.pad(x, ((0, _padded_number(n) - n), (0, 0)), mode="edge")
            with using(self._plan):
                value, gradient = _compiled.jitted(
                    self._rest, self._arrays, padded.astype(self._dtype), np.int32(n), needs_gradient
                )
        else:
            found = self._target.evaluate(self._key, on_device(x, self._dtype), n, needs_gradient)
            value, gradient = found.log_density, found.gradient
        gradients = None if gradient is None else np.asarray(gradient, float)[:n]
        return np.asarray(value, float)[:n], gradients


def _padded_number(n: int) -> int:
    """1, 64, 512, 4096 and so on: every other number of points would be compiled anew."""
    return 1 if n == 1 else max(64, 8 ** -(-(n - 1).bit_length() // 3))


@quick_array_jit(static_argnums=(0, 4))
def _compiled(
    rest: Rest, arrays: tuple[Array | None, ...], x: Points, count: Count | np.int32, needs_gradient: bool
) -> tuple[Array, Array | None]:
    target, key = rest.joined(arrays)
    found = target.evaluate(key, jnp.asarray(x), jnp.asarray(count), needs_gradient)
    return found.log_density, found.gradient


@quick_jit()
def _hessian(target: AbstractTarget, key: PRNGKey, x: Float[Array, " D"]) -> Float[Array, "D D"]:
    def value(x: Float[Array, " D"]) -> Array:
        return target.evaluate(key, x[None], jnp.asarray(1), needs_gradient=False).log_density[0]

    return jax.hessian(value)(x)
