"""Option T: the longest natural-gradient step within a bound on the KL divergence."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Scalar
from natmix.gaussians import AbstractGaussians, FullGaussians
from natmix.kernels import native
from natmix.kernels.interval_search import first_inside
from natmix.modules.component_updaters.base import (
    MAX_ROUNDING,
    AbstractComponentUpdater,
    Loops,
    Proposal,
    Updated,
)
from natmix.modules.component_updaters.cholesky_search import cholesky_search
from natmix.modules.component_updaters.kl_by_moments import NEAR, near_zero
from natmix.modules.records import NaturalGradient

_CPU_EIGEN_DIM = 30
_ACCELERATOR_EIGEN_DIM = 32
"""Dimensions up to which an eigen-decomposition beats the search by Cholesky factors."""

_HALVINGS = 20
_LOG_RANGE = (-60.0, 60.0)


def _by_loops(
    gaussians: FullGaussians,
    natural_gradient: NaturalGradient,
    stepsize: Float[Array, " K"],
    temperature: Scalar,
    usable: Bool[Array, " K"],
) -> Updated:
    mean, L, W, ok = native.trust_region(
        natural_gradient.curvature,
        natural_gradient.gradient,
        stepsize,
        usable,
        temperature,
        MAX_ROUNDING,
        gaussians.mean,
        gaussians.scale_tril,
        gaussians.inverse_tril,
    )
    return FullGaussians(mean, L, W), ok


class TrustRegion(AbstractComponentUpdater):
    """The step of Eq. 4 with the largest b = 1/eta <= 1/T such that KL(new || old) <= stepsize.

    Whitened and in the eigenbasis of A (eigenvalues l, gradient coordinates b) the new precision is
    1 + l/eta, the mean step -b/(eta + l), and

        KL(eta) = 1/2 sum_i [log(1 + x_i) - x_i/(1 + x_i) + (b_i/(eta + l_i))^2],  x_i = l_i/eta,

    which falls as eta grows wherever the precision is positive definite. One eigen-decomposition
    thus makes the search for eta a matter of D scalar terms. In many dimensions, and in the loops for CPUs,
    a few Cholesky factors take less time.
    """

    loops: ClassVar[Loops | None] = staticmethod(_by_loops)
    letter: ClassVar[str] = "T"
    title: ClassVar[str] = "Trust-Region"

    def propose(
        self,
        gaussians: AbstractGaussians,
        natural_gradient: NaturalGradient,
        stepsize: Float[Array, " K"],
        updates: Int[Array, " K"],
        temperature: Scalar,
    ) -> Proposal:
        usable = natural_gradient.ok
        curvature = natural_gradient.curvature
        A = jnp.where(usable.reshape(-1, *[1] * (curvature.ndim - 1)), curvature, 0)
        a = jnp.where(usable[:, None], natural_gradient.gradient, 0)
        if _prefers_cholesky(gaussians):
            found = cholesky_search(A, a, stepsize, temperature)
            return Proposal(gaussians.moved(found.factor, found.shift), found.ok)
        eigenvalues, basis = gaussians.spectrum(A)
        b = gaussians.into_basis(basis, a)
        step = solve_trust_region(eigenvalues, b, stepsize, temperature)
        U = gaussians.factor(gaussians.from_spectrum(step.gap / step.eta[:, None], basis))
        shift = gaussians.from_basis(basis, -b / step.gap)
        return Proposal(gaussians.moved(U, shift), step.ok)


def _prefers_cholesky(gaussians: AbstractGaussians) -> bool:
    """Whether a few Cholesky factorisations are faster than one eigen-decomposition."""
    limit = _CPU_EIGEN_DIM if jax.default_backend() == "cpu" else _ACCELERATOR_EIGEN_DIM
    return gaussians.dim > limit and isinstance(gaussians, FullGaussians)


class TrustRegionStep(NamedTuple):
    """The solution of the search, per component."""

    eta: Float[Array, " K"]
    gap: Float[Array, "K D"]
    """eta + l, kept apart because it may be far smaller than both."""
    kl: Float[Array, " K"]
    ok: Bool[Array, " K"]


def solve_trust_region(
    eigenvalues: Float[Array, "K D"],
    b: Float[Array, "K D"],
    bound: Float[Array, " K"],
    temperature: Scalar,
) -> TrustRegionStep:
    """The smallest eta >= T with a positive definite precision and KL <= bound."""
    smallest = jnp.min(eigenvalues, axis=1)
    base = jnp.maximum(temperature, -smallest)
    above = eigenvalues + base[:, None]  # >= 0; exactly 0 for the critical eigenvalue

    def kl_at(excess: Float[Array, "*S K"]) -> Float[Array, "*S K"]:
        return _kl(eigenvalues, b, base + excess, above + excess[..., None])

    full = kl_at(jnp.zeros_like(base))
    full_step = (temperature > -smallest) & (full <= bound)
    # Excess over the base, on a logarithmic scale relative to the size of the problem.
    size = jnp.maximum(base, jnp.max(jnp.abs(b), axis=1))
    size = jnp.maximum(size, jnp.max(jnp.abs(eigenvalues), axis=1))
    low = jnp.full_like(base, _LOG_RANGE[0])
    high = jnp.full_like(base, _LOG_RANGE[1])
    found = first_inside(lambda t: kl_at(size * jnp.exp(t)) <= bound, low, high, _HALVINGS, eigenvalues.size)
    excess = jnp.where(full_step, 0, size * jnp.exp(found))
    eta, gap = base + excess, above + excess[:, None]
    kl = _kl(eigenvalues, b, eta, gap)
    # The same KL, rounded otherwise, may end a digit above the bound.
    ok = (kl <= 1.001 * bound) & (bound > 0) & jnp.isfinite(eta) & jnp.all(gap > 0, axis=1)
    return TrustRegionStep(eta, gap, kl, ok)


def _kl(
    eigenvalues: Float[Array, "K D"],
    b: Float[Array, "K D"],
    eta: Float[Array, "*S K"],
    gap: Float[Array, "*S K D"],
) -> Float[Array, "*S K"]:
    # x = l/eta and 1 + x = gap/eta; log(1 + x) - x/(1 + x) loses its digits for small x.
    x = eigenvalues / eta[..., None]
    ratio = gap / eta[..., None]
    exact = jnp.where(jnp.abs(x) < 0.5, jnp.log1p(x), jnp.log(ratio)) - x / ratio
    covariance = jnp.where(jnp.abs(x) < NEAR, x * x * near_zero(x), exact)
    return 0.5 * jnp.sum(covariance + (b / gap) ** 2, axis=-1)
