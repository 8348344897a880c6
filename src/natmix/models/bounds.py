"""Transformations of bounded variables to unconstrained ones."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import expit, log_expit


def as_side(side: Any, default: float) -> Float[np.ndarray, "..."]:
    """One side of the bounds, with ``default`` for None and for entries that are None."""
    entries = np.asarray(side, object)
    filled = [default if entry is None else entry for entry in entries.ravel()]
    return np.asarray(filled, float).reshape(entries.shape)


class Constrained(NamedTuple):
    """Points between bounds, and derivatives of the transformation that led there.

    Attributes:
        x: the points.
        slope: dx/dz, entry by entry.
        log_jacobian: log |dx/dz| of every point.
        log_jacobian_gradient: its gradient in z.
    """

    x: Float[np.ndarray, "N D"]
    slope: Float[np.ndarray, "N D"]
    log_jacobian: Float[np.ndarray, " N"]
    log_jacobian_gradient: Float[np.ndarray, "N D"]


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

    def constrained(self, z: Float[np.ndarray, "N D"]) -> Constrained:
        """`constrain` and `log_jacobian` of many points in NumPy, with their derivatives."""
        x, slope = np.array(z, np.float64), np.ones(z.shape)
        log_jacobian, gradient = np.zeros(len(z)), np.zeros(z.shape)
        if (both := self._both).any():
            low, width, inside = self.low[both], (self.high - self.low)[both], z[:, both]
            share, rest = expit(inside), expit(-inside)
            x[:, both], slope[:, both] = low + width * share, width * share * rest
            log_jacobian += np.sum(np.log(width) + log_expit(inside) + log_expit(-inside), axis=1)
            gradient[:, both] = rest - share
        for one, side, sign in ((self._below, self.low, 1.0), (self._above, self.high, -1.0)):
            if one.any():
                with np.errstate(over="ignore"):  # as in JAX: an infinite point, which the target judges
                    away = np.exp(z[:, one])
                x[:, one], slope[:, one] = side[one] + sign * away, sign * away
                log_jacobian += np.sum(z[:, one], axis=1)
                gradient[:, one] = 1.0
        return Constrained(x, slope, log_jacobian, gradient)

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


def position_inside(dim: int | None, bounds: Any) -> Any:
    """A position within the bounds: a vector, or a dictionary if the bounds are by name."""
    if isinstance(bounds, dict):
        found = {name: _between(*_sides(pair, f"The bounds of {name}")) for name, pair in bounds.items()}
        numbers = sum(value.size for value in found.values())
        if dim not in (None, numbers):
            raise ValueError(
                f"dim={dim} was given, but bounds by name belong to numbers, {numbers} here: give a position "
                "with the variables' shapes, or bounds as a pair (low, high)."
            )
        return found
    low, high = _sides(bounds, "bounds")
    if low.ndim == 0:
        if dim is None:
            raise ValueError("Give dim, the number of dimensions of the target.")
        low, high = np.broadcast_to(low, dim), np.broadcast_to(high, dim)
    if dim is not None and low.shape != (dim,):
        raise ValueError(f"dim={dim} was given, but the bounds have the shape {list(low.shape)}.")
    return _between(low, high)


def _sides(pair: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        first, second = pair
        low, high = np.broadcast_arrays(as_side(first, -np.inf), as_side(second, np.inf))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a pair (low, high) of numbers or arrays, got {pair!r}.") from None
    return low, high


def _between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    both = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        middle = np.where(both, (low + high) / 2, np.where(np.isfinite(low), low + 1, high - 1))
    return np.where(np.isfinite(middle), middle, 0.0)
