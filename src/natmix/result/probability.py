"""Probabilities of boxes and of events."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr, ndtri

from natmix.estimate import Estimate
from natmix.mixture import Mixture

_SHIFTS = 16
_POINTS = (128, 4096)
_NUMBERS = 8_000_000
"""The smallest and the largest number of points for each shift, and of numbers in memory."""


def box_probability(
    mixture: Mixture, low: Float[np.ndarray, " D"], high: Float[np.ndarray, " D"], seed: int
) -> Estimate:
    """P(low < z < high) of a mixture: exact in one dimension and for diagonal covariances.

    Otherwise by Genz's separation of variables with randomly shifted lattices.
    """
    bounded = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
    if np.any(low >= high):
        return Estimate(0.0, 0.0)
    if not bounded.size:
        return Estimate(1.0, 0.0)
    mixture = mixture.marginal(bounded)
    low, high = low[bounded], high[bounded]
    weights = np.exp(np.asarray(mixture.log_weights, float))
    weights /= weights.sum()
    means = np.asarray(mixture.means, float)
    if bounded.size == 1 or mixture.components.axis_aligned:
        scales = np.asarray(mixture.components.std(), float)
        a, b = (low - means) / scales, (high - means) / scales
        return Estimate(float(weights @ np.prod(_between(a, b), axis=1)), 0.0)
    factors = np.asarray(mixture.components.cholesky(), float)
    shifted = _separated(weights, factors, low - means, high - means, seed)
    value = float(np.clip(shifted.mean(), 0, 1))
    return Estimate(value, float(shifted.std(ddof=1) / np.sqrt(_SHIFTS)))


def event_probability(holds: Bool[np.ndarray, " N"], weights: Float[np.ndarray, " N"] | None) -> Estimate:
    """The share of draws, with its standard error; weighted if there are weights, which sum to one.

    Where all draws agree the error is that of one draw which differs.
    """
    n = len(holds)
    if weights is None:
        value = float(holds.mean())
        smooth = (holds.sum() + 1) / (n + 2)
        return Estimate(value, float(np.sqrt(smooth * (1 - smooth) / n)))
    value = float(np.clip(weights @ holds, 0, 1))
    size = 1 / float(np.sum(weights**2))
    smooth = (value * size + 1) / (size + 2)
    error = float(np.sqrt(np.sum(weights**2 * (holds - value) ** 2)))
    return Estimate(value, max(error, float(np.sqrt(smooth * (1 - smooth) / size))))


def truth(event: Callable[[dict[str, np.ndarray]], Any], draws: dict[str, np.ndarray], n: int) -> Any:
    """Where an event holds.

    Raises:
        ValueError: it does not give a truth value for each draw.
    """
    holds = np.asarray(event(draws))
    if holds.dtype != bool or holds.shape != (n,):
        raise ValueError(
            f"The event must return an array of {n} truth values, one for each draw, such as d['mu'] > 0; it "
            f"returned {holds.dtype} of shape {list(holds.shape)}."
        )
    return holds


def _between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Phi(b) - Phi(a), in the tail where it keeps its digits."""
    flip = a > 0
    return np.maximum(ndtr(np.where(flip, -a, b)) - ndtr(np.where(flip, -b, a)), 0.0)


def _separated(
    weights: Float[np.ndarray, " K"],
    factors: Float[np.ndarray, "K D D"],
    low: Float[np.ndarray, "K D"],
    high: Float[np.ndarray, "K D"],
    seed: int,
) -> Float[np.ndarray, " S"]:
    """One unbiased estimate for each random shift of a lattice of Richtmyer's."""
    K, D = low.shape
    n = int(np.clip(_NUMBERS // (K * D * _SHIFTS), *_POINTS))
    steps = np.sqrt(_primes(D - 1))
    shifts = np.random.default_rng(seed).uniform(size=(_SHIFTS, 1, D - 1))
    lattice = (np.arange(1, n + 1)[:, None] * steps + shifts) % 1
    u = np.abs(2 * lattice - 1).reshape(_SHIFTS * n, D - 1)
    y = np.zeros((K, len(u), D - 1))
    product = np.ones((K, len(u)))
    for i in range(D):
        reached = np.einsum("knj,kj->kn", y[:, :, :i], factors[:, i, :i])
        scale = factors[:, i, i, None]
        a, b = (low[:, i, None] - reached) / scale, (high[:, i, None] - reached) / scale
        share = _between(a, b)
        product *= share
        if i < D - 1:
            flip = a > 0
            start = ndtr(np.where(flip, -b, a))
            drawn = ndtri(np.clip(start + u[:, i] * share, 1e-300, 1 - 1e-16))
            y[:, :, i] = np.where(flip, -drawn, drawn)
    return (weights @ product).reshape(_SHIFTS, n).mean(axis=1)


def _primes(n: int) -> Float[np.ndarray, " n"]:
    """The first ``n`` primes."""
    limit = int(max(16, n * (np.log(n + 2) + np.log(np.log(n + 3)) + 2)))
    sieve = np.ones(limit + 1, bool)
    sieve[:2] = False
    for i in range(2, int(limit**0.5) + 1):
        sieve[i * i :: i] &= not sieve[i]
    return np.flatnonzero(sieve)[:n].astype(float)
