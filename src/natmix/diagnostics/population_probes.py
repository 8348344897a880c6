"""Starting points of the mode search without gradients: where they are drawn, and which start runs."""

import numpy as np
from jaxtyping import ArrayLike, Bool, Float, Int

from natmix.diagnostics.known_modes import KnownModes
from natmix.diagnostics.look_back import UNEXPLAINED
from natmix.diagnostics.narrow_modes import Ellipses, cholesky
from natmix.diagnostics.search_starts import gaussian_of_modes, reach
from natmix.mixture import Mixture

_SPREAD = (1.0, 3.0, 10.0)
"""Probes are drawn from a Gaussian with the mixture's moments, made so many times as wide."""
_MODES_SPREAD = (0.7, 1.0, 1.4, 3.0)
"""And from the Gaussian of the centres, if two modes or more are known."""
_AROUND = (3.0, 10.0, 30.0)
"""A third of them is drawn around single known modes, made so many times as wide: of two heavy-tailed modes
that are close to each other, and far from all others, one hides the other from afar."""
_EXCESS, _SLACK = UNEXPLAINED, 0.1
"""A known mode explains log densities that exceed its own by at most so many nats, and by this share of the
fall from its top: in the far field an error of its covariance makes as much."""
_TAILS_EXCESS, _TAILS_SLACK = 1.0, 0.02
"""The same for heavy tails, which fall slowly: where an unknown mode is nearer than the known ones, it raises
the density by little."""


class Probes:
    """Draws probes around the initial region and around what is known."""

    def __init__(self, region: Mixture, mixture: Mixture, rng: np.random.Generator) -> None:
        self._region, self._rng = region, rng
        self._whole = mixture.mean(), mixture.covariance()
        self._means = np.asarray(mixture.means, float)[np.asarray(mixture.exists)]

    def reach(self, centres: Float[np.ndarray, "M D"]) -> tuple[float, ...]:
        """How many times as wide as the region probes are spread."""
        return reach(self._region, np.concatenate([self._means, centres]))

    def drawn(
        self, n: int, modes: Ellipses
    ) -> tuple[Float[np.ndarray, "n D"], Float[np.ndarray, "n D D"], Bool[np.ndarray, " n"]]:
        """Points from many Gaussians, the covariances of these, and which points are around single modes."""
        centres = modes.centres
        sources = _widened(self._region.means[0], self._region.covariances[0], self.reach(centres))
        sources += _widened(*gaussian_of_modes(centres), _MODES_SPREAD) if len(centres) > 1 else []
        sources += _widened(*self._whole, _SPREAD)
        of = (np.arange(n) + self._rng.integers(len(sources))) % len(sources)
        means = np.stack([mean for mean, _ in sources])[of]
        covariances = np.stack([covariance for _, covariance in sources])[of]
        near = self._rng.uniform(size=n) < 1 / 3
        mode = self._rng.integers(len(centres), size=n)[near]
        widths = self._rng.choice(_AROUND, size=n)[near]
        means[near] = centres[mode]
        covariances[near] = widths[:, None, None] ** 2 * modes.covariances[mode]
        steps = np.einsum("nij,nj->ni", cholesky(covariances), self._rng.normal(size=means.shape))
        return means + steps, covariances, near


def _widened(
    mean: ArrayLike, covariance: ArrayLike, factors: tuple[float, ...]
) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.asarray(mean, float), r**2 * np.asarray(covariance, float)) for r in factors]


class Excess:
    """By how much the target exceeds what is known at some points.

    Attributes:
        open: whether no known mode explains a point.
        mode: the known mode that contributes most to the density there.
        ratio: the excess in nats, relative to the fall of the known density from its top.
    """

    def __init__(
        self, known: KnownModes, x: Float[np.ndarray, "N D"], log_p: Float[np.ndarray, " N"], eps: float
    ) -> None:
        log_q, self.mode = known.explain_with_tails(x, log_p)
        fall = np.maximum(known.explain(known.centres)[0].max() - log_q, 0)
        deficit = known.deficit(log_p, log_q)
        rounding = 16 * eps * np.abs(np.where(np.isfinite(log_p), log_p, 0))
        least, slack = (_EXCESS, _SLACK) if np.isinf(known.dof) else (_TAILS_EXCESS, _TAILS_SLACK)
        self.open = deficit > least + slack * fall + rounding
        self.ratio = deficit / (_EXCESS + fall)


def chosen_starts(
    x: Float[np.ndarray, "N D"],
    log_p: Float[np.ndarray, " N"],
    ratio: Float[np.ndarray, " N"],
    most: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, " M"]:
    """Points higher than their neighbours: half of them those of largest excess, the others at random."""
    peaks = _local_peaks(x, log_p)
    best = peaks[np.argsort(-ratio[peaks], kind="stable")]
    half = (most + 1) // 2
    return np.concatenate([best[:half], rng.permutation(best[half:])[: most - half]]).astype(int)


def _local_peaks(x: Float[np.ndarray, "N D"], log_p: Float[np.ndarray, " N"]) -> Int[np.ndarray, " M"]:
    """The points that are higher than their D + 1 nearest neighbours."""
    N, D = x.shape
    if N <= 2:
        return np.arange(N)
    squared = np.sum(x**2, axis=1)
    distance = squared[:, None] + squared - 2 * x @ x.T
    np.fill_diagonal(distance, np.inf)
    k = min(D + 1, N - 1)
    nearest = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return np.flatnonzero(log_p >= log_p[nearest].max(axis=1))
