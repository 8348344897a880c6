"""Transformations of bounded variables to unconstrained ones."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def as_side(side: Any, default: float) -> Float[np.ndarray, "..."]:
    """One side of the bounds, with ``default`` for None and for entries that are None."""
    entries = np.asarray(side, object)
    filled = [default if entry is None else entry for entry in entries.ravel()]
    return np.asarray(filled, float).reshape(entries.shape)


class Bounds(NamedTuple):
    """Lower and upper bounds of every entry; infinite where there is none."""

    low: Float[np.ndarray, " D"]
    high: Float[np.ndarray, " D"]

    @classmethod
    def build(cls, pair: Any, shape: tuple[int, ...], name: str) -> "Bounds":
        """From (low, high), each a number, None or an array, for a variable of a shape."""
        try:
            low, high = pair
        except (TypeError, ValueError):
            raise ValueError(f"The bounds of {name} must be a pair (low, high), got {pair!r}.") from None
        sides = []
        for side, default in ((low, -np.inf), (high, np.inf)):
            try:
                sides.append(np.broadcast_to(as_side(side, default), shape).ravel())
            except (TypeError, ValueError):
                raise ValueError(
                    f"A bound of {name} must be a number or an array of shape {list(shape)}, got {side!r}."
                ) from None
        if not np.all(sides[0] < sides[1]):
            raise ValueError(f"The lower bound of {name} must be below the upper one, got {pair!r}.")
        return cls(*sides)

    def constrain(self, z: Float[Array, " D"]) -> Float[Array, " D"]:
        """Low + (high - low) sigmoid(z) between two bounds, low + e^z and high - e^z at one, z without."""
        low, high = (jnp.asarray(side, z.dtype) for side in self._finite())
        inside = low + (high - low) * jax.nn.sigmoid(z)
        # Masked first: e^z could overflow elsewhere, and its unused gradient would be zero times infinity.
        away = jnp.exp(jnp.where(self._below | self._above, z, 0))
        one_sided = jnp.where(self._below, low + away, high - away)
        return jnp.where(self._both, inside, jnp.where(self._below | self._above, one_sided, z))

    def log_jacobian(self, z: Float[Array, " D"]) -> Array:
        """Log |d constrain / dz|."""
        low, high = (jnp.asarray(side, z.dtype) for side in self._finite())
        inside = jnp.log(high - low) + jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z)
        return jnp.sum(jnp.where(self._both, inside, jnp.where(self._below | self._above, z, 0)))

    def unconstrain(self, x: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N D"]:
        """The inverse of `constrain`, for points strictly inside."""
        low, high = self._finite()
        with np.errstate(divide="ignore", invalid="ignore"):
            logit = np.log(x - low) - np.log(high - x)
            one_sided = np.log(np.where(self._below, x - low, high - x))
        return np.where(self._both, logit, np.where(self._below | self._above, one_sided, x))

    def _finite(self) -> tuple[np.ndarray, np.ndarray]:
        """Both sides with finite numbers in place of infinite ones: gradients must not be NaN there."""
        low = np.where(np.isfinite(self.low), self.low, 0.0)
        return low, np.where(np.isfinite(self.high), self.high, low + 1)

    @property
    def _both(self) -> np.ndarray:
        return np.isfinite(self.low) & np.isfinite(self.high)

    @property
    def _below(self) -> np.ndarray:
        return np.isfinite(self.low) & ~np.isfinite(self.high)

    @property
    def _above(self) -> np.ndarray:
        return np.isfinite(self.high) & ~np.isfinite(self.low)
