"""The KL divergence of a step as a function of its length, from a few moments instead of the spectrum."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from natmix.kernels.linalg import einsum

NEAR = 0.02
"""Below this |x| the series `near_zero` is more accurate than f itself."""


class Nodes(NamedTuple):
    """Gauss's quadrature with two nodes: exact for cubic functions of an eigenvalue."""

    points: Float[Array, "2 K"]
    roots: Float[Array, "2 K"]
    """Square roots of the weights: they are divided by eta before squaring, so that nothing overflows."""


class KlByMoments(NamedTuple):
    """KL(eta) = 1/2 sum_i [f(l_i/eta) + b_i^2/(eta + l_i)^2] with f(x) = log(1 + x) - x/(1 + x).

    l are the eigenvalues of A, b the coordinates of a in its eigenbasis. The sums over i are integrals over
    two measures on the line, with weights l_i^2 and b_i^2, whose first four moments are tr A^2 to tr A^5
    and a^T a to a^T A^3 a. Two nodes each are close when the spectrum is not wide beside eta.
    """

    covariance: Nodes
    mean: Nodes

    @classmethod
    def of(cls, A: Float[Array, "K D D"], a: Float[Array, "K D"]) -> "KlByMoments":
        size = jnp.maximum(jnp.max(jnp.abs(A), axis=(1, 2)), jnp.finfo(A.dtype).tiny)
        A = A / size[:, None, None]
        square = einsum("kij,kjl->kil", A, A)
        cube = einsum("kij,kjl->kil", square, A)
        pairs = ((A, A), (A, square), (square, square), (square, cube))
        covariance = _two_nodes(*(einsum("kij,kij->k", *pair) for pair in pairs))
        Aa = einsum("kij,kj->ki", A, a)
        vectors = ((a, a), (a, Aa), (Aa, Aa), (Aa, einsum("kij,kj->ki", A, Aa)))
        mean = _two_nodes(*(einsum("ki,ki->k", *pair) for pair in vectors))
        return cls(
            Nodes(size * covariance.points, size * covariance.roots), Nodes(size * mean.points, mean.roots)
        )

    def of_short_steps(self) -> Float[Array, " K"]:
        """The square root of KL(eta) eta^2 for large eta."""
        return jnp.linalg.norm(
            jnp.concatenate([0.5 * self.covariance.roots, 0.5**0.5 * self.mean.roots]), axis=0
        )

    def __call__(self, log_eta: Float[Array, "*S K"]) -> Float[Array, "*S K"]:
        """KL(eta); NaN where a node lies at or below -eta, so that the precision is not positive definite."""
        eta = jnp.exp(log_eta)
        (point, root), (point2, root2) = zip(*self.covariance, strict=True)
        covariance = _of_covariance(point, root, eta) + _of_covariance(point2, root2, eta)
        (point, root), (point2, root2) = zip(*self.mean, strict=True)
        return 0.5 * (covariance + _of_mean(point, root, eta) + _of_mean(point2, root2, eta))


def near_zero(x: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """The series of f(x) / x^2, for x so small that f itself cancels."""
    return 0.5 - x * (2 / 3 - x * (0.75 - x * 0.8))


def _of_covariance(
    eigenvalue: Float[Array, " K"], root: Float[Array, " K"], eta: Float[Array, "*S K"]
) -> Float[Array, "*S K"]:
    """The weight times f(l/eta) / l^2, which is 1/(2 eta^2) at l = 0."""
    x = eigenvalue / eta
    near = jnp.abs(x) < NEAR
    safe = jnp.where(near, 1, x)
    exact = (jnp.log1p(safe) - safe / (1 + safe)) / (safe * safe)
    return jnp.where(x > -1, jnp.where(near, near_zero(x), exact), jnp.nan) * (root / eta) ** 2


def _of_mean(
    eigenvalue: Float[Array, " K"], root: Float[Array, " K"], eta: Float[Array, "*S K"]
) -> Float[Array, "*S K"]:
    """The weight over (eta + l)^2."""
    gap = eta + eigenvalue
    return jnp.where(gap > 0, (root / gap) ** 2, jnp.nan)


def _two_nodes(*moments: Float[Array, " K"]) -> Nodes:
    """Nodes and weights with these moments 0 to 3; one node where all the weight is at one point."""
    total, first, second, third = moments
    tiny = jnp.finfo(total.dtype).tiny
    scale = 1 / jnp.maximum(total, tiny)
    centre = first * scale
    variance = jnp.maximum(second * scale - centre**2, 0)
    deviation = jnp.sqrt(variance)
    skew = (third * scale - 3 * centre * second * scale + 2 * centre**3) / jnp.maximum(
        variance * deviation, tiny
    )
    # Below this variance the skewness is lost to rounding.
    skew = jnp.where(variance > jnp.finfo(total.dtype).eps ** (2 / 3) * centre**2, skew, 0)
    root = jnp.sqrt(1 + 0.25 * skew**2)
    points = centre + deviation * jnp.stack([0.5 * skew - root, 0.5 * skew + root])
    share = 0.25 * skew / root
    weights = total * jnp.clip(jnp.stack([0.5 + share, 0.5 - share]), 0, 1)
    return Nodes(points, jnp.sqrt(weights))
