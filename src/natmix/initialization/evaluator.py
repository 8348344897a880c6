"""A target for methods on the host: values, gradients and Hessians as float64, counted."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import Count, PRNGKey
from natmix.kernels.compilation import quick_jit
from natmix.targets import AbstractTarget


class SpentError(Exception):
    """No evaluation is left."""


class Values:
    """Evaluates a target at points of the host.

    Attributes:
        evaluations: so far; a Hessian counts as one per dimension. Never more than ``most``.
    """

    def __init__(
        self, target: AbstractTarget, key: PRNGKey, dtype: jnp.dtype, most: int | None = None
    ) -> None:
        self._target, self._key, self._dtype, self._most = target, key, dtype, most
        self.evaluations = 0

    @property
    def left(self) -> float:
        """Evaluations that may still be made."""
        return float("inf") if self._most is None else self._most - self.evaluations

    def _spend(self, n: int) -> None:
        if n > self.left:
            raise SpentError
        self.evaluations += n

    def alone(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """Log densities."""
        return self._evaluated(x, needs_gradient=False)[0]

    def with_gradient(
        self, x: Float[np.ndarray, "N D"]
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N D"]]:
        """Log densities and their gradients."""
        value, gradient = self._evaluated(x, needs_gradient=True)
        assert gradient is not None
        return value, gradient

    def hessian(self, x: Float[np.ndarray, " D"]) -> Float[np.ndarray, "D D"] | None:
        """Of the log density; None for a target outside JAX."""
        if not self._target.inside_jax:
            return None
        self._spend(len(x))
        return np.asarray(_hessian(self._target, self._key, jnp.asarray(x, self._dtype)), float)

    def _evaluated(
        self, x: Float[np.ndarray, "N D"], needs_gradient: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        n = len(x)
        self._spend(n)
        if self._target.inside_jax:
            # Few different shapes, as each is a program of its own.
            padded = np.pad(x, ((0, (1 << (n - 1).bit_length()) - n), (0, 0)), mode="edge")
            points = jnp.asarray(padded, self._dtype)
            value, gradient = _compiled(self._target, self._key, points, jnp.asarray(n), needs_gradient)
        else:
            found = self._target.evaluate(self._key, jnp.asarray(x, self._dtype), n, needs_gradient)
            value, gradient = found.log_density, found.gradient
        slope = None if gradient is None else np.asarray(gradient, float)[:n]
        return np.asarray(value, float)[:n], slope


@quick_jit()
def _compiled(
    target: AbstractTarget, key: PRNGKey, x: Float[Array, "N D"], count: Count, needs_gradient: bool
) -> tuple[Array, Array | None]:
    found = target.evaluate(key, x, count, needs_gradient)
    return found.log_density, found.gradient


@quick_jit()
def _hessian(target: AbstractTarget, key: PRNGKey, x: Float[Array, " D"]) -> Float[Array, "D D"]:
    def value(x: Float[Array, " D"]) -> Array:
        return target.evaluate(key, x[None], jnp.asarray(1), needs_gradient=False).log_density[0]

    return jax.hessian(value)(x)
