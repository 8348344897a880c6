"""A density on a grid of the plane."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natmix.mixture import Mixture
from natmix.targets import as_target

Bounds = tuple[float, float, float, float]
"""(left, right, bottom, top)."""

_TAIL = 0.002
_MARGIN = 0.12


class Grid(NamedTuple):
    """Log densities at the points of a rectangular grid, normalised to mass one over the grid.

    Attributes:
        x: the horizontal coordinates [R].
        y: the vertical coordinates [R].
        log_density: [R, R], rows along y.
    """

    x: np.ndarray
    y: np.ndarray
    log_density: np.ndarray

    @property
    def mass(self) -> np.ndarray:
        """The share of the mass at each point; sums to one."""
        return np.exp(self.log_density) * (self.x[1] - self.x[0]) * (self.y[1] - self.y[0])


def window(mixture: Mixture) -> Bounds:
    """A rectangle that contains nearly all of a 2-D mixture."""
    (left, bottom), (right, top) = np.asarray(mixture.quantile([_TAIL, 1 - _TAIL]), dtype=float)
    pad_x, pad_y = _MARGIN * (right - left), _MARGIN * (top - bottom)
    return (left - pad_x, right + pad_x, bottom - pad_y, top + pad_y)


def on_grid(density: Any, bounds: Bounds, resolution: int) -> Grid:
    """Evaluate a mixture, or anything that `natmix.fit` accepts, on a grid.

    Args:
        density: a 2-D `Mixture`, a target, or a function that is one.
        bounds: the rectangle.
        resolution: points along each side.
    """
    if resolution < 2:
        raise ValueError(f"resolution must be at least 2, got {resolution}.")
    left, right, bottom, top = bounds
    if not (left < right and bottom < top):
        raise ValueError(f"bounds must be (left, right, bottom, top) in increasing order, got {bounds}.")
    x, y = np.linspace(left, right, resolution), np.linspace(bottom, top, resolution)
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    values = _log_density(density, points).reshape(resolution, resolution)
    return Grid(x, y, _normalised(values, (x[1] - x[0]) * (y[1] - y[0])))


def _log_density(density: Any, points: np.ndarray) -> np.ndarray:
    if isinstance(density, Mixture):
        return np.asarray(density.log_prob(points), dtype=float)
    dtype = jnp.result_type(float)
    target = as_target(density, 2, dtype, points.mean(axis=0))[0]
    evaluation = target.evaluate(jax.random.key(0), jnp.asarray(points, dtype), len(points), False)
    return np.asarray(evaluation.log_density, dtype=float)


def _normalised(log_density: np.ndarray, cell: float) -> np.ndarray:
    usable = np.where(log_density < np.inf, log_density, -np.inf)  # NaN and +inf count as zero density
    highest = usable.max()
    if highest == -np.inf:
        raise ValueError("The density is zero or not finite everywhere on the grid; choose other bounds.")
    return usable - highest - np.log(np.exp(usable - highest).sum() * cell)
