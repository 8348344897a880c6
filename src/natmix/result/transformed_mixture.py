"""The distribution of one number: a Gaussian mixture in one coordinate, transformed."""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from natmix.mixture import Mixture
from natmix.models.scalar_maps import ScalarMap

_HALVINGS = 100
_FEWEST_NODES, _MOST_NODES, _FAR = 101, 200_001, 12.0
"""Nodes of the trapezoidal rule, within so many standard deviations of a component."""
_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)


class TransformedMixture:
    """y = map(z), where z has a one-dimensional Gaussian mixture; everything in float64."""

    def __init__(self, mixture: Mixture, of: ScalarMap) -> None:
        log_weights = np.asarray(mixture.log_weights, float)
        present = log_weights > -np.inf
        self._log_weights = log_weights[present] - logsumexp(log_weights[present])
        self._means = np.asarray(mixture.means, float)[present, 0]
        self._scales = np.asarray(mixture.components.std(), float)[present, 0]
        self._map = of
        self._rises = of.scale > 0

    @property
    def support(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return self._map.support

    def logpdf(self, y: Any) -> Any:
        """Log density at y; -inf outside of the support."""
        z = np.asarray(self._map.unconstrain(y))
        inside = np.isfinite(z)
        at = np.where(inside, z, 0.0)
        u = self._standard(at)
        log_q = logsumexp(self._log_weights - 0.5 * u**2 - np.log(self._scales) - _LOG_SQRT_2PI, axis=-1)
        out = np.where(inside, log_q - self._map.log_slope(at), -np.inf)
        return np.where(np.isnan(np.asarray(y, float)), np.nan, out)[()]

    def logcdf(self, y: Any, *, above: bool = False) -> Any:
        """Log P(Y <= y), or log P(Y > y)."""
        low, high = self._map.support
        z = self._map.unconstrain(np.clip(np.asarray(y, float), low, high))
        return self._log_below(z, above == self._rises)

    def quantile(self, log_p: Any, *, above: bool = False) -> Any:
        """The y with P(Y <= y) = p, or with P(Y > y) = p; NaN where p is no probability."""
        log_p = np.asarray(log_p, float)
        bad = ~(log_p <= 0)
        z = self._solved(np.where(bad, -1.0, log_p), above == self._rises)
        return np.where(bad, np.nan, self._map.constrain(z))[()]

    def moments(self) -> tuple[float, float]:
        """Mean and variance: in closed form, those of logistic variables by quadrature."""
        w, m, s = np.exp(self._log_weights), self._means, self._scales
        with np.errstate(over="ignore", invalid="ignore"):
            if self._map.kind == "identity":
                inner, within = m, s**2
            elif self._map.kind == "exp":
                inner = np.exp(m + s**2 / 2)
                within = inner**2 * np.expm1(s**2)
            else:
                inner, within = self._by_quadrature()
            mean = float(w @ inner)
            variance = float(w @ (within + (inner - mean) ** 2))
        scale = self._map.scale
        return self._map.offset + scale * mean, scale**2 * variance

    def draws(self, n: int, rng: np.random.Generator) -> Float[np.ndarray, " n"]:
        """``n`` samples."""
        weights = np.exp(self._log_weights)
        chosen = rng.choice(len(weights), size=n, p=weights / weights.sum())
        z = self._means[chosen] + self._scales[chosen] * rng.standard_normal(n)
        return np.asarray(self._map.constrain(z))

    def _standard(self, z: Any) -> Float[np.ndarray, "*P K"]:
        return (np.asarray(z)[..., None] - self._means) / self._scales

    def _log_below(self, z: Any, above: bool) -> Any:
        u = self._standard(z)
        found = logsumexp(self._log_weights + log_ndtr(-u if above else u), axis=-1)
        return np.minimum(found, 0.0)[()]

    def _solved(self, log_p: np.ndarray, above: bool) -> np.ndarray:
        """The coordinate by bisection, between the smallest and the largest of the components' own.

        Of probabilities beyond one half the other side is solved, which keeps their digits.
        """
        far = log_p > -np.log(2)
        with np.errstate(divide="ignore"):
            other = np.log(-np.expm1(log_p))
        from_above = far != above
        target = np.where(far, other, log_p)
        sign = np.where(from_above, -1.0, 1.0)
        own = self._means + self._scales * (sign * ndtri_exp(target))[..., None]
        low, high = own.min(axis=-1), own.max(axis=-1)
        ends = ~np.isfinite(target)
        low, high = np.where(ends, 0.0, low), np.where(ends, 0.0, high)
        for _ in range(_HALVINGS):
            middle = low + 0.5 * (high - low)
            u = self._standard(middle) * sign[..., None]
            reached = logsumexp(self._log_weights + log_ndtr(u), axis=-1) >= target
            right = reached != from_above  # the solution is to the left of the middle
            low, high = np.where(right, low, middle), np.where(right, middle, high)
        return np.where(ends, -sign * np.inf, low + 0.5 * (high - low))

    def _by_quadrature(self) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
        """Mean and variance of g(z) under each component.

        The trapezoidal rule converges exponentially: g is analytic within a distance of pi of the real line.
        """
        widest = float(self._scales.max())
        nodes = int(np.clip(2 * _FAR * 4 * max(1.0, widest), _FEWEST_NODES, _MOST_NODES))
        u = np.linspace(-_FAR, _FAR, nodes)
        weights = np.exp(-0.5 * u**2)
        weights /= weights.sum()
        plain = ScalarMap(self._map.kind)
        first, second = np.zeros(len(self._means)), np.zeros(len(self._means))
        rows = max(1, 2_000_000 // nodes)
        for begin in range(0, len(self._means), rows):
            part = slice(begin, begin + rows)
            g = plain.constrain(self._means[part, None] + self._scales[part, None] * u)
            first[part] = g @ weights
            second[part] = (g - first[part, None]) ** 2 @ weights
        return first, second
