"""Random targets in NumPy with one to five modes: Gaussians, Student's t, or bananas; with exact samples."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln, logsumexp

DIMENSIONS = (2, 3, 5, 8, 12)
KINDS = ("Gaussian", "Student", "banana")
HALF_SIDE = 20.0
"""Of the box that every method is told."""
MEANS_WITHIN = 8.0
CLOSEST = 6.0
"""Distance of the closest two modes, in the largest width."""
DOF = 8.0
BEND = 1.0
EXACT = 400_000


@dataclasses.dataclass
class BlackBox:
    """A normalised density, which counts its evaluations.

    Attributes:
        kind: of the modes.
        weights: of the modes.
        means: their centres.
        factors: lower triangular; mode k is means[k] + factors[k] y with y of the standard shape.
        evaluations: so far.
    """

    kind: str
    weights: Float[np.ndarray, " K"]
    means: Float[np.ndarray, "K D"]
    factors: Float[np.ndarray, "K D D"]
    evaluations: int = 0

    @property
    def dim(self) -> int:
        """D."""
        return self.means.shape[1]

    def __call__(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """Log densities; counted."""
        self.evaluations += len(x)
        return logsumexp(self.by_mode(x), axis=1)

    def by_mode(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
        """The log densities of the modes times their weights."""
        D, columns = self.dim, []
        for mean, factor in zip(self.means, self.factors, strict=True):
            y = np.linalg.solve(factor, (x - mean).T).T
            if self.kind == "banana":
                y[:, 1] += BEND * (y[:, 0] ** 2 - 1)
            square = np.sum(y**2, axis=1)
            if self.kind == "Student":
                top = gammaln(0.5 * (DOF + D)) - gammaln(0.5 * DOF) - 0.5 * D * np.log(DOF * np.pi)
                shape = top - 0.5 * (DOF + D) * np.log1p(square / DOF)
            else:
                shape = -0.5 * square - 0.5 * D * np.log(2 * np.pi)
            columns.append(shape - np.log(np.diagonal(factor)).sum())
        return np.stack(columns, axis=1) + np.log(self.weights)

    def modes_of(self, x: Float[np.ndarray, "N D"]) -> Int[np.ndarray, " N"]:
        """The mode with the largest share of the density at each point."""
        return self.by_mode(x).argmax(axis=1)

    def sample(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n D"]:
        """Exact samples."""
        modes = rng.choice(len(self.weights), n, p=self.weights)
        y = rng.normal(size=(n, self.dim))
        if self.kind == "Student":
            y *= np.sqrt(DOF / rng.chisquare(DOF, (n, 1)))
        if self.kind == "banana":
            y[:, 1] -= BEND * (y[:, 0] ** 2 - 1)
        return self.means[modes] + np.einsum("nij,nj->ni", self.factors[modes], y)


def draw_target(seed: int) -> BlackBox:
    """The target with this seed."""
    rng = np.random.default_rng([25, seed])
    D, kind = DIMENSIONS[seed % len(DIMENSIONS)], KINDS[seed // len(DIMENSIONS) % len(KINDS)]
    K = int(rng.integers(1, 6))
    weights = 0.05 + (1 - 0.05 * K) * rng.dirichlet(np.ones(K))
    widths = rng.uniform(0.5, 1.0, K)
    while True:
        means = rng.uniform(-MEANS_WITHIN, MEANS_WITHIN, (K, D))
        apart = np.linalg.norm(means[:, None] - means, axis=-1) + 1e9 * np.eye(K)
        if apart.min() >= CLOSEST * widths.max():
            break
        widths *= 0.98
    factors = np.stack([width * _shape(rng, D) for width in widths])
    return BlackBox(kind, weights, means, factors)


def _shape(rng: np.random.Generator, dim: int) -> Float[np.ndarray, "D D"]:
    axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    scales = np.exp(rng.uniform(-0.5, 0.5, dim))
    return np.linalg.cholesky((axes * scales**2) @ axes.T)


@dataclasses.dataclass(frozen=True)
class Errors:
    """The largest errors of draws: of a mean in standard deviations, of a standard deviation, of a share."""

    mean: float
    spread: float
    share: float

    @property
    def right(self) -> bool:
        """Whether all are as small as asked."""
        return self.mean <= 0.1 and self.spread <= 0.1 and self.share <= 0.05


class Judge:
    """Compares draws with exact samples."""

    def __init__(self, target: BlackBox) -> None:
        self._target = target
        exact = target.sample(np.random.default_rng(12345), EXACT)
        self._mean, self._sd = exact.mean(axis=0), exact.std(axis=0)
        self._shares = self._shares_of(exact)

    def __call__(self, draws: Float[np.ndarray, "N D"]) -> Errors:
        """The errors of draws."""
        return Errors(
            float(np.max(np.abs(draws.mean(axis=0) - self._mean) / self._sd)),
            float(np.max(np.abs(draws.std(axis=0) / self._sd - 1))),
            float(np.max(np.abs(self._shares_of(draws) - self._shares))),
        )

    def _shares_of(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " K"]:
        return np.bincount(self._target.modes_of(x), minlength=len(self._target.weights)) / len(x)
