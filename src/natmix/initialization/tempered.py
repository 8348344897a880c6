"""A tempered warm-up: points that follow the target from the start region step by step.

Sequential Monte Carlo (P. Del Moral, A. Doucet, A. Jasra, J. R. Statist. Soc. B 2006): the density
r(x)^(1-b) p(x)^b goes from the region r at b = 0 to the target p at b = 1. Each step raises b until half of
the points are effective, draws them again by their weights, and lets them move: by Hamiltonian Monte Carlo
in the metric of their covariance, or by a random walk for a target without gradients.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from natmix.initialization.evaluator import SpentError, Values
from natmix.kernels.threads import single_threaded_blas
from natmix.mixture import Mixture

_PER_DIMENSION, _FEWEST, _MOST = 10, 200, 2000
"""Points."""
_EFFECTIVE = 0.5
"""Share of points that stay effective in one step."""
_MOST_STEPS = 100
_MOVES, _LEAPS = 2, 4
"""Of each step, with gradients; without, as many evaluations in moves of one."""
_WANTED = (0.6, 0.9)
"""Share of moves to be taken: their length is changed below and above."""


class Cloud(NamedTuple):
    """Points that follow the target.

    Attributes:
        x: where they are.
        b: how far they have come; 1 at the target.
    """

    x: Float[np.ndarray, "N D"]
    b: float


class _Points(NamedTuple):
    x: Float[np.ndarray, "N D"]
    log_p: Float[np.ndarray, " N"]
    log_r: Float[np.ndarray, " N"]
    slope_p: Float[np.ndarray, "N D"]
    slope_r: Float[np.ndarray, "N D"]

    def height(self, b: float) -> Float[np.ndarray, " N"]:
        return (1 - b) * self.log_r + b * self.log_p

    def slope(self, b: float) -> Float[np.ndarray, "N D"]:
        return (1 - b) * self.slope_r + b * self.slope_p


def tempered(values: Values, region: Mixture, seed: int, *, gradients: bool) -> Cloud | None:
    """Points of the target, or as near as the evaluations allow; None if none has a positive density."""
    rng = np.random.default_rng(seed)
    n = int(np.clip(_PER_DIMENSION * region.dim, _FEWEST, _MOST))
    n = int(min(n, values.left))
    if n < 2:
        return None
    x = np.asarray(region.sample(n, key=jax.random.key(seed % 2**32)), float)
    warming = _Warming(values, region, gradients, rng)
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        points = warming.at(x)
        if not np.isfinite(points.log_p).any():
            return None
        b = 0.0
        try:
            for _ in range(_MOST_STEPS):
                b, points = warming.raised(b, points)
                points = warming.moved(b, points)
                if b == 1:
                    points = warming.moved(b, points)
                    break
        except SpentError:
            pass
    return Cloud(points.x, b)


class _Warming:
    def __init__(self, values: Values, region: Mixture, gradients: bool, rng: np.random.Generator) -> None:
        self._values, self._gradients, self._rng = values, gradients, rng
        self._mean = np.asarray(region.means[0], float)
        self._precision = np.linalg.inv(np.asarray(region.covariances[0], float))
        self._region = region
        self._length = 1.0

    def at(self, x: Float[np.ndarray, "N D"]) -> _Points:
        """Values there; a density that is not finite is one of zero."""
        pull = -(x - self._mean) @ self._precision
        log_r = 0.5 * np.sum((x - self._mean) * pull, axis=1)
        if self._gradients:
            log_p, slope = self._values.with_gradient(x)
        else:
            log_p, slope = self._values.alone(x), np.zeros_like(x)
        log_p = np.where(np.isfinite(log_p), log_p, -np.inf)
        return _Points(x, log_p, log_r, np.where(np.isfinite(slope), slope, 0), pull)

    def raised(self, b: float, points: _Points) -> tuple[float, _Points]:
        """The next b, by bisection, and the points drawn again."""
        gain = np.where(np.isfinite(points.log_p), points.log_p - points.log_r, -np.inf)
        alive = np.isfinite(gain)
        low, high = 0.0, 1 - b
        if _effective(high * gain[alive]) < _EFFECTIVE * alive.sum():
            for _ in range(50):
                middle = 0.5 * (low + high)
                enough = _effective(middle * gain[alive]) >= _EFFECTIVE * alive.sum()
                low, high = (middle, high) if enough else (low, middle)
            step = max(low, 1e-12)
        else:
            step = high
        log_w = np.where(alive, step * np.where(alive, gain, 0), -np.inf)
        w = np.exp(log_w - log_w.max())
        places = (np.arange(len(w)) + self._rng.uniform()) / len(w)
        chosen = np.minimum(np.searchsorted(np.cumsum(w) / w.sum(), places), len(w) - 1)
        return (1.0 if step == 1 - b else b + step), _Points(*(a[chosen] for a in points))

    def moved(self, b: float, points: _Points) -> _Points:
        """Some moves, in the metric of the points' covariance."""
        N, D = points.x.shape
        spread = np.cov(points.x.T).reshape(D, D)
        shrunk = spread if N > 5 * D else 0.5 * (spread + np.diag(np.diag(spread)))
        ridge = np.diag(np.maximum(np.diag(shrunk), np.finfo(float).tiny) * 1e-6)
        L = np.linalg.cholesky(shrunk + ridge)
        moves, leaps = (_MOVES, _LEAPS) if self._gradients else (_MOVES * _LEAPS, 1)
        for _ in range(moves):
            new, log_odds = self._proposed(b, points, L, leaps)
            taken = np.log(self._rng.uniform(size=N)) < np.where(np.isfinite(log_odds), log_odds, -np.inf)
            points = _Points(
                *(
                    np.where(taken.reshape(-1, *([1] * (a.ndim - 1))), a, old)
                    for a, old in zip(new, points, strict=True)
                )
            )
            share = taken.mean()
            low, high = _WANTED if self._gradients else (0.2, 0.4)
            self._length *= 0.7 if share < low else 1.3 if share > high and self._length < 1 else 1.0
        return points

    def _proposed(
        self, b: float, points: _Points, L: Float[np.ndarray, "D D"], leaps: int
    ) -> tuple[_Points, Float[np.ndarray, " N"]]:
        N, D = points.x.shape
        momentum = first = self._rng.normal(size=(N, D))
        if not self._gradients:
            new = self.at(points.x + self._length * 2.4 / np.sqrt(D) * momentum @ L.T)
            return new, new.height(b) - points.height(b)
        step = self._length / D**0.25 * self._rng.uniform(0.3, 1.2, size=(N, 1))
        new = points
        for _ in range(leaps):
            momentum = momentum + 0.5 * step * (new.slope(b) @ L)
            new = self.at(new.x + step * momentum @ L.T)
            momentum = momentum + 0.5 * step * (new.slope(b) @ L)
        kinetic = 0.5 * np.sum(momentum**2 - first**2, axis=1)
        return new, new.height(b) - points.height(b) - kinetic


def _effective(log_w: Float[np.ndarray, " N"]) -> float:
    w = np.exp(log_w - log_w.max())
    return float(w.sum() ** 2 / np.sum(w * w))
