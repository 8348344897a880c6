"""Compare a target's gradient with differences of its values, before a fit relies on it.

Along a line parallel to an axis, f(x + h) - f(x - h) is the integral of the partial derivative. Simpson's
rule takes it from the gradients at both ends and in the middle, so that a long step, whose difference stands
out of rounding errors, costs little accuracy. Midpoint and trapezoidal rule differ where the rule cannot be
relied on: at kinks, or where the third derivative is large.
"""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.array_types import PRNGKey
from natmix.kernels.compilation import quick_jit
from natmix.targets.base import AbstractTarget, TargetError
from natmix.targets.jax_target import JaxTarget

_CANDIDATES, _NOISE, _CONFIRMED = 4, 2, 1
"""Points to choose from for each coordinate; evaluations that measure the noise of the values; and
coordinates that are checked a second time, at another point, before they are called wrong."""
_TOLERANCE = 0.015
"""The relative difference that passes: a third of the 5% that must be found."""
_CHANGE = 0.01
"""Nats by which the log density should change over a step, if rounding allows so little."""
_ABOVE_NOISE = 500.0
"""A step's change of the log density, in rounding errors: a twentieth of it is then 25 of them."""
_MARGIN = 8.0
"""Rounding errors that a difference of values may be off."""


class WrongPartial(NamedTuple):
    """A coordinate in which gradient and values do not match.

    Attributes:
        coordinate: its number, from 0 on.
        claimed: the mean partial derivative over a step, by the gradient.
        measured: the same by the difference of values.
    """

    coordinate: int
    claimed: float
    measured: float


class GradientCheck(NamedTuple):
    """What the comparison found.

    Attributes:
        evaluations: of the target, at most 2 D + 8.
        suspicious: coordinates in which gradient and values do not match, the worst first.
    """

    evaluations: int
    suspicious: tuple[WrongPartial, ...]

    def require(self, names: tuple[str, ...] = ()) -> None:
        """Raise if the gradient is wrong.

        It is an error, not a note: with a wrong gradient no fit is right, and a target without gradient is
        always an alternative.
        """
        if not self.suspicious:
            return
        worst = self.suspicious[0]
        i = worst.coordinate
        name = names[i] if names else f"coordinate {i}"
        others = len(self.suspicious) - 1
        more = f", and {others} more" if others else ""
        raise TargetError(
            f"The target's gradient does not match its log density in {name}{more}: it says "
            f"{worst.claimed:.4g}, differences of the log density say {worst.measured:.4g}. Correct it, or "
            "give the log density alone.",
            self.evaluations,
        )


def evaluations_of_check(target: AbstractTarget) -> int:
    """The most evaluations that a check takes; 0 for a target that needs none.

    JAX's own derivatives need none, and random values cannot be compared.
    """
    if not target.has_gradient:
        return 0
    if isinstance(target, JaxTarget) and (target.stochastic or not target.returns_gradient):
        return 0
    return _CANDIDATES + _NOISE + 2 * target.dim + 2 * _CONFIRMED


def check_gradient(
    target: AbstractTarget,
    key: PRNGKey,
    points: Float[np.ndarray, "N D"],
    scale: Float[np.ndarray, " D"],
    dtype: Any,
) -> GradientCheck:
    """Compare gradient and values, coordinate by coordinate.

    Args:
        target: with a gradient of its own.
        key: of a target that takes one.
        points: at least four, where the density may be positive.
        scale: about how far the density extends, by coordinate: no step is longer.
        dtype: in which the fit evaluates the target.
    """
    return _Check(target, key, dtype).run(np.asarray(points, float)[:_CANDIDATES], np.asarray(scale, float))


class _Values(NamedTuple):
    log_density: Float[np.ndarray, " N"]
    gradient: Float[np.ndarray, "N D"]

    @property
    def usable(self) -> np.ndarray:
        return np.isfinite(self.log_density) & np.isfinite(self.gradient).all(axis=1)


@dataclasses.dataclass
class _Check:
    """One check of a gradient, and the evaluations so far."""

    target: AbstractTarget
    key: PRNGKey
    dtype: Any
    evaluations: int = 0

    def run(self, points: np.ndarray, scale: np.ndarray) -> GradientCheck:
        points = self._rounded(points)
        at = self._evaluate(points)
        if not at.usable.any():
            return GradientCheck(self.evaluations, ())
        points, at = points[at.usable], _Values(*(v[at.usable] for v in at))
        noise = self._noise(points, at)
        # By coordinate: the points in the order of how much the log density changes there, over its noise.
        order = np.argsort(-np.abs(at.gradient) / noise[:, None], axis=0, kind="stable")
        best = order[0]
        found = self._compare(points, at, noise, scale, np.arange(points.shape[1]), best)
        if not found:
            return GradientCheck(self.evaluations, ())
        worst = np.array([found[0].coordinate])
        other = order[min(1, len(points) - 1)][worst]
        again = self._compare(points, at, noise, scale, worst, other)
        return GradientCheck(self.evaluations, tuple(found) if again else ())

    def _noise(self, points: np.ndarray, at: _Values) -> np.ndarray:
        """The rounding error of the log density at the points: by its size, and as measured at one of them.

        A neighbour a few units in the last place away has the same value up to its noise.
        """
        eps = float(jnp.finfo(self.dtype).eps)
        by_size = eps * np.maximum(np.abs(at.log_density), 1.0)
        first = int(np.argmax(at.log_density))
        step = 4 * eps * np.maximum(np.abs(points[first]), eps)
        near = self._rounded(points[first] + np.stack([step, -step])[:_NOISE])
        found = self._evaluate(near).log_density
        expected = at.log_density[first] + (near - points[first]) @ at.gradient[first]
        measured = np.abs(found - expected)
        largest = float(np.max(measured[np.isfinite(measured)], initial=0.0))
        return np.maximum(by_size, largest)

    def _compare(
        self,
        points: np.ndarray,
        at: _Values,
        noise: np.ndarray,
        scale: np.ndarray,
        coordinates: np.ndarray,
        chosen: np.ndarray,
    ) -> list[WrongPartial]:
        """The coordinates in which gradient and values differ at the chosen points, the worst first."""
        middle = at.gradient[chosen, coordinates]
        error = noise[chosen]
        change = np.maximum(_CHANGE, _ABOVE_NOISE * error)
        with np.errstate(divide="ignore"):
            h = np.minimum(change / (2 * np.abs(middle)), scale[coordinates])
        ends = np.stack([points[chosen], points[chosen]])
        rows = np.arange(len(coordinates))
        ends[0, rows, coordinates] -= h
        ends[1, rows, coordinates] += h
        ends = self._rounded(ends)
        found = self._evaluate(ends.reshape(-1, points.shape[1]))
        value = found.log_density.reshape(2, -1)
        slope = found.gradient.reshape(2, len(coordinates), -1)[:, rows, coordinates]
        x = points[chosen, coordinates]
        left, right = x - ends[0, rows, coordinates], ends[1, rows, coordinates] - x
        width = left + right
        with np.errstate(invalid="ignore", over="ignore"):
            measured = value[1] - value[0]
            midpoint, trapezoid = width * middle, width * (slope[0] + slope[1]) / 2
            claimed = (2 * midpoint + trapezoid) / 3
            size = np.maximum(np.abs(measured), np.abs(claimed))
            slack = np.abs(midpoint - trapezoid) + _MARGIN * np.maximum(error, self._error(value))
            excess = np.abs(measured - claimed) - slack - _TOLERANCE * size
        usable = np.isfinite(excess) & (width > 0)
        wrong = np.flatnonzero(usable & (excess > 0))
        wrong = wrong[np.argsort(-(excess[wrong] / size[wrong]), kind="stable")]
        return [
            WrongPartial(int(coordinates[i]), float(claimed[i] / width[i]), float(measured[i] / width[i]))
            for i in wrong
        ]

    def _error(self, value: np.ndarray) -> np.ndarray:
        """The rounding error of a difference of these values."""
        return float(jnp.finfo(self.dtype).eps) * np.abs(value).max(axis=0)

    def _rounded(self, x: np.ndarray) -> np.ndarray:
        """The points that the target is given, in its float type."""
        return np.asarray(np.asarray(x, self.dtype), float)

    def _evaluate(self, x: np.ndarray) -> _Values:
        self.evaluations += len(x)
        given = jnp.asarray(x, self.dtype)
        evaluate = _compiled if self.target.inside_jax else _on_host
        log_density, gradient = evaluate(self.target, self.key, given)
        return _Values(np.asarray(log_density, float), np.asarray(gradient, float))


def _on_host(target: AbstractTarget, key: PRNGKey, x: Any) -> tuple[Any, Any]:
    found = target.evaluate(key, x, x.shape[0], needs_gradient=True)
    return found.log_density, found.gradient


@quick_jit()
def _compiled(target: AbstractTarget, key: PRNGKey, x: Any) -> tuple[Any, Any]:
    found = target.evaluate(key, x, jnp.asarray(x.shape[0]), needs_gradient=True)
    return found.log_density, found.gradient
