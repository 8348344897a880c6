"""Tempered initialisation: samples that move from the initial region to the target in steps.

Sequential Monte Carlo (P. Del Moral, A. Doucet, A. Jasra, J. R. Statist. Soc. B 2006): the density
r(x)^(1-b) p(x)^b goes from the region r at b = 0 to the target p at b = 1, b being the inverse temperature.
Each step raises b until the effective sample size is half the number of samples, resamples, and moves the
samples: by Hamiltonian Monte Carlo in the metric of their covariance, or by a random walk for a target
without gradients.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from natmix.initialization.evaluator import BudgetSpentError, TargetEvaluator
from natmix.kernels.threads import single_threaded_blas
from natmix.mixture import Mixture

_PER_DIMENSION, _MIN_SAMPLES, _MAX_SAMPLES = 10, 200, 2000
"""The number of samples."""
_RELATIVE_ESS = 0.5
"""The effective sample size after each step, per sample."""
_MAX_STEPS = 100
_MOVES, _LEAPFROG_STEPS = 2, 4
"""Per step, with gradients; without, as many evaluations in random-walk moves of one."""
_ACCEPTANCE, _WALK_ACCEPTANCE = (0.6, 0.9), (0.2, 0.4)
"""The step size is adapted below and above these acceptance rates, with gradients and without."""


class TemperedSamples(NamedTuple):
    """Samples of the tempered target.

    Attributes:
        x: the samples.
        inverse_temperature: 0 at the initial region, 1 at the target.
    """

    x: Float[np.ndarray, "N D"]
    inverse_temperature: float


class _Points(NamedTuple):
    """Samples with the log densities of target and region, and their gradients."""

    x: Float[np.ndarray, "N D"]
    log_p: Float[np.ndarray, " N"]
    log_r: Float[np.ndarray, " N"]
    gradient_p: Float[np.ndarray, "N D"]
    gradient_r: Float[np.ndarray, "N D"]

    def log_density(self, b: float) -> Float[np.ndarray, " N"]:
        return (1 - b) * self.log_r + b * self.log_p

    def gradient(self, b: float) -> Float[np.ndarray, "N D"]:
        return (1 - b) * self.gradient_r + b * self.gradient_p


def tempered_samples(
    evaluator: TargetEvaluator, region: Mixture, seed: int, *, gradients: bool
) -> TemperedSamples | None:
    """Samples of the target, or as near as the budget allows; None if none has a positive density."""
    rng = np.random.default_rng(seed)
    n = int(np.clip(_PER_DIMENSION * region.dim, _MIN_SAMPLES, _MAX_SAMPLES))
    n = int(min(n, evaluator.remaining))
    if n < 2:
        return None
    x = np.asarray(region.sample(n, key=jax.random.key(seed % 2**32)), float)
    sampler = _Sampler(evaluator, region, gradients, rng)
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        points = sampler.at(x)
        if not np.isfinite(points.log_p).any():
            return None
        b = 0.0
        try:
            for _ in range(_MAX_STEPS):
                b, points = sampler.tempered(b, points)
                points = sampler.moved(b, points)
                if b == 1:
                    points = sampler.moved(b, points)
                    break
        except BudgetSpentError:
            pass
    return TemperedSamples(points.x, b)


class _Sampler:
    def __init__(
        self, evaluator: TargetEvaluator, region: Mixture, gradients: bool, rng: np.random.Generator
    ) -> None:
        self._evaluator, self._gradients, self._rng = evaluator, gradients, rng
        self._mean = np.asarray(region.means[0], float)
        self._precision = np.linalg.inv(np.asarray(region.covariances[0], float))
        self._step_size = 1.0

    def at(self, x: Float[np.ndarray, "N D"]) -> _Points:
        """The samples at ``x``; a log density that is not finite counts as -inf."""
        gradient_r = -(x - self._mean) @ self._precision
        log_r = 0.5 * np.sum((x - self._mean) * gradient_r, axis=1)
        if self._gradients:
            log_p, gradient = self._evaluator.with_gradient(x)
        else:
            log_p, gradient = self._evaluator.log_density(x), np.zeros_like(x)
        log_p = np.where(np.isfinite(log_p), log_p, -np.inf)
        return _Points(x, log_p, log_r, np.where(np.isfinite(gradient), gradient, 0), gradient_r)

    def tempered(self, b: float, points: _Points) -> tuple[float, _Points]:
        """The next b, by bisection, and the samples resampled for it."""
        log_ratio = np.where(np.isfinite(points.log_p), points.log_p - points.log_r, -np.inf)
        alive = np.isfinite(log_ratio)
        low, high = 0.0, 1 - b
        if _ess(high * log_ratio[alive]) < _RELATIVE_ESS * alive.sum():
            for _ in range(50):
                middle = 0.5 * (low + high)
                enough = _ess(middle * log_ratio[alive]) >= _RELATIVE_ESS * alive.sum()
                low, high = (middle, high) if enough else (low, middle)
            step = max(low, 1e-12)
        else:
            step = high
        log_w = np.where(alive, step * np.where(alive, log_ratio, 0), -np.inf)
        w = np.exp(log_w - log_w.max())
        quantiles = (np.arange(len(w)) + self._rng.uniform()) / len(w)
        resampled = np.minimum(np.searchsorted(np.cumsum(w) / w.sum(), quantiles), len(w) - 1)
        return (1.0 if step == 1 - b else b + step), _Points(*(a[resampled] for a in points))

    def moved(self, b: float, points: _Points) -> _Points:
        """A few moves in the metric of the samples' covariance."""
        N, D = points.x.shape
        covariance = np.cov(points.x.T).reshape(D, D)
        shrunk = covariance if N > 5 * D else 0.5 * (covariance + np.diag(np.diag(covariance)))
        ridge = np.diag(np.maximum(np.diag(shrunk), np.finfo(float).tiny) * 1e-6)
        L = np.linalg.cholesky(shrunk + ridge)
        moves, leapfrog_steps = (
            (_MOVES, _LEAPFROG_STEPS) if self._gradients else (_MOVES * _LEAPFROG_STEPS, 1)
        )
        for _ in range(moves):
            new, log_acceptance = self._propose(b, points, L, leapfrog_steps)
            accepted = np.log(self._rng.uniform(size=N)) < np.where(
                np.isfinite(log_acceptance), log_acceptance, -np.inf
            )
            points = _Points(
                *(
                    np.where(accepted.reshape(-1, *([1] * (a.ndim - 1))), a, old)
                    for a, old in zip(new, points, strict=True)
                )
            )
            rate = accepted.mean()
            low, high = _ACCEPTANCE if self._gradients else _WALK_ACCEPTANCE
            self._step_size *= 0.7 if rate < low else 1.3 if rate > high and self._step_size < 1 else 1.0
        return points

    def _propose(
        self, b: float, points: _Points, L: Float[np.ndarray, "D D"], leapfrog_steps: int
    ) -> tuple[_Points, Float[np.ndarray, " N"]]:
        N, D = points.x.shape
        momentum = initial = self._rng.normal(size=(N, D))
        if not self._gradients:
            new = self.at(points.x + self._step_size * 2.4 / np.sqrt(D) * momentum @ L.T)
            return new, new.log_density(b) - points.log_density(b)
        step = self._step_size / D**0.25 * self._rng.uniform(0.3, 1.2, size=(N, 1))
        new = points
        for _ in range(leapfrog_steps):
            momentum = momentum + 0.5 * step * (new.gradient(b) @ L)
            new = self.at(new.x + step * momentum @ L.T)
            momentum = momentum + 0.5 * step * (new.gradient(b) @ L)
        kinetic = 0.5 * np.sum(momentum**2 - initial**2, axis=1)
        return new, new.log_density(b) - points.log_density(b) - kinetic


def _ess(log_w: Float[np.ndarray, " N"]) -> float:
    w = np.exp(log_w - log_w.max())
    return float(w.sum() ** 2 / np.sum(w * w))
