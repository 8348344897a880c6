"""Random mixtures of Gaussians or Student's t, as targets whose modes, weights and evidence are known.

How a target is drawn, from a seed and the name of a suite:

- The dimension follows from the seed, so that even and odd seeds have the same dimensions.
- The number of modes is uniform. The kind (Gaussian, or Student's t with 5 degrees of freedom) and that of
  the weights (equal, or 1% plus a uniform draw from the simplex for what is left) have equal chances.
- The width of a mode is the geometric mean of the standard deviations along its principal axes (for
  Student's t of the scales). Widths are log-uniform from 1 to the suite's largest ratio. In half of the
  targets the modes are spheres. In the others the scales along random axes are log-uniform within a factor
  of 3.
- The means are uniform in a cube. Its size is such that the closest two modes are d widths (of the wider
  one) apart, d log-uniform from 6 to 60. The cube's centre is uniform up to half of its side from the
  origin, in every coordinate.

The density is normalised: log Z = 0.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import gammaln, logsumexp

DOF = 5.0
CLOSEST, FARTHEST = 6.0, 60.0
SMALLEST_WEIGHT = 0.01
AXES_RATIO = 3.0


class Suite(NamedTuple):
    """What the targets of a suite have in common.

    Attributes:
        number: part of the seed, so that suites have different targets.
        dims: the dimensions, in turns.
        extra_dims: those of the seeds from ``seeds`` on, which are reported apart.
        modes: the smallest and the largest number of modes.
        width_ratio: of the widest mode to the narrowest, at most.
        seeds: how many targets the suite has.
        values_only: the target has no gradients.
    """

    number: int
    dims: tuple[int, ...]
    extra_dims: tuple[int, ...]
    modes: tuple[int, int]
    width_ratio: float
    seeds: int
    values_only: bool = False


SUITES = {
    "equal": Suite(1, (2, 5, 10, 30, 50), (), (5, 60), 1.5, 60),
    "uneven": Suite(2, (2, 3, 5), (10, 30), (5, 60), 5.0, 30),
    "values": Suite(3, (2, 3, 5, 8), (), (2, 10), 1.5, 40, values_only=True),
}


class MixtureDensity(eqx.Module):
    """The log density in JAX; its data are arguments of compiled programs, padded to a power of two modes."""

    log_weights: Float[Array, " K"]
    means: Float[Array, "K D"]
    whitening: Float[Array, "K D D"]
    log_scale: Float[Array, " K"]
    dof: Float[Array, ""]
    student: bool = eqx.field(static=True)

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, ""]:
        z = jnp.einsum("kij,kj->ki", self.whitening, x - self.means, precision="highest")
        square = jnp.sum(z**2, axis=1)
        power = 0.5 * (self.dof + x.size)
        shape = -power * jnp.log1p(square / self.dof) if self.student else -0.5 * square
        return jax.nn.logsumexp(self.log_weights + self.log_scale + shape)


@dataclasses.dataclass(frozen=True)
class KnownMixture:
    """The truth, in float64.

    Attributes:
        weights: of the modes, with sum 1.
        means: their centres.
        factors: lower triangular L; the covariance (scale matrix of Student's t) is L L^T.
        dof: degrees of freedom; infinity for Gaussians.
    """

    weights: Float[np.ndarray, " K"]
    means: Float[np.ndarray, "K D"]
    factors: Float[np.ndarray, "K D D"]
    dof: float = np.inf

    @property
    def dim(self) -> int:
        """D."""
        return self.means.shape[1]

    @property
    def log_scale(self) -> Float[np.ndarray, " K"]:
        """The log density of every mode at its centre."""
        D, log_det = self.dim, np.log(np.diagonal(self.factors, axis1=1, axis2=2)).sum(1)
        if np.isinf(self.dof):
            return -0.5 * D * np.log(2 * np.pi) - log_det
        top = gammaln(0.5 * (self.dof + D)) - gammaln(0.5 * self.dof)
        return top - 0.5 * D * np.log(self.dof * np.pi) - log_det

    def by_mode(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N K"]:
        """The log densities of the modes times their weights."""
        columns = []
        for mean, factor in zip(self.means, self.factors, strict=True):
            square = np.sum(np.linalg.solve(factor, (x - mean).T) ** 2, axis=0)
            power = 0.5 * (self.dof + self.dim)
            columns.append(-0.5 * square if np.isinf(self.dof) else -power * np.log1p(square / self.dof))
        return np.stack(columns, axis=1) + np.log(self.weights) + self.log_scale

    def log_prob(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """The normalised log density."""
        return logsumexp(self.by_mode(x), axis=1)

    def mode_of(self, x: Float[np.ndarray, "N D"]) -> Int[np.ndarray, " N"]:
        """The mode with the largest share of the density at each point."""
        return self.by_mode(x).argmax(1)

    def sample(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n D"]:
        """Exact samples."""
        return self.sample_of(rng, rng.choice(len(self.weights), n, p=self.weights))

    def sample_of(self, rng: np.random.Generator, modes: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n D"]:
        """A sample of each of these modes."""
        noise = rng.normal(size=(len(modes), self.dim))
        if np.isfinite(self.dof):
            noise *= np.sqrt(self.dof / rng.chisquare(self.dof, (len(modes), 1)))
        return self.means[modes] + np.einsum("nij,nj->ni", self.factors[modes], noise)

    def density(self) -> MixtureDensity:
        """For `natmix.fit`."""
        D, K = self.dim, len(self.weights)
        padding = max(8, 1 << (K - 1).bit_length()) - K
        with np.errstate(divide="ignore"):
            log_weights = np.log(np.pad(self.weights, (0, padding)))
        whitening = np.concatenate([np.linalg.inv(self.factors), np.tile(np.eye(D), (padding, 1, 1))])
        student = bool(np.isfinite(self.dof))
        return MixtureDensity(
            jnp.asarray(log_weights, float),
            jnp.asarray(np.pad(self.means, ((0, padding), (0, 0))), float),
            jnp.asarray(whitening, float),
            jnp.asarray(np.pad(self.log_scale, (0, padding)), float),
            jnp.asarray(self.dof if student else 1.0, float),
            student,
        )


@dataclasses.dataclass(frozen=True)
class RandomMixture:
    """A target of a suite.

    Attributes:
        truth: the density.
        equal_weights: whether all modes have the same weight.
        spheres: whether the modes are spherical.
        distance: of the closest two modes, in widths.
        side: of the cube of means, in units of the smallest possible width.
    """

    truth: KnownMixture
    equal_weights: bool
    spheres: bool
    distance: float
    side: float


def dimension(suite: Suite, seed: int) -> int:
    """The dimension of the target with this seed."""
    if seed >= suite.seeds and suite.extra_dims:
        return suite.extra_dims[(seed - suite.seeds) // 2 % len(suite.extra_dims)]
    return suite.dims[seed // 2 % len(suite.dims)]


def random_mixture(suite: Suite, seed: int) -> RandomMixture:
    """The target with this seed."""
    rng = np.random.default_rng([suite.number, seed])
    D = dimension(suite, seed)
    K = int(rng.integers(suite.modes[0], suite.modes[1] + 1))
    student, equal, spheres = (bool(rng.integers(2)) for _ in range(3))
    rest = 1 - K * SMALLEST_WEIGHT
    weights = np.full(K, 1 / K) if equal else SMALLEST_WEIGHT + rest * rng.dirichlet(np.ones(K))
    widths = suite.width_ratio ** rng.uniform(size=K)
    distance = float(CLOSEST * (FARTHEST / CLOSEST) ** rng.uniform())
    cube = rng.uniform(-0.5, 0.5, size=(K, D))
    apart = np.linalg.norm(cube[:, None] - cube, axis=-1) / np.maximum(widths[:, None], widths)
    side = float(distance / apart[~np.eye(K, dtype=bool)].min())
    means = side * (cube + rng.uniform(-0.5, 0.5, size=D))
    factors = np.stack([width * _shape(rng, D, spheres) for width in widths])
    truth = KnownMixture(weights, means, factors, DOF if student else np.inf)
    return RandomMixture(truth, equal, spheres, distance, side)


def _shape(rng: np.random.Generator, dim: int, sphere: bool) -> Float[np.ndarray, "D D"]:
    """The factor of a covariance with determinant 1."""
    if sphere:
        return np.eye(dim)
    axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    log_scales = rng.uniform(0, np.log(AXES_RATIO), size=dim)
    scales = np.exp(log_scales - log_scales.mean())
    return np.linalg.cholesky((axes * scales**2) @ axes.T)
