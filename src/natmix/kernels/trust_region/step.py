"""The longest natural-gradient step within a bound on the KL divergence: its forms, and which one is used.

The step of Eq. 4 with the largest b = 1/eta <= 1/T such that KL(new || old) <= bound. In whitened coordinates
and in the eigenbasis of A (eigenvalues l, gradient coordinates b) the new precision is 1 + l/eta, the mean
step -b/(eta + l), and

    KL(eta) = 1/2 sum_i [log(1 + x_i) - x_i/(1 + x_i) + (b_i/(eta + l_i))^2],  x_i = l_i/eta,

which falls as eta grows wherever the precision is positive definite.

Forms:

    eigen       one eigen-decomposition, then a search with D scalar terms; for every covariance family.
    cholesky    a few Cholesky factorisations, guided by moments of A; for dense factors.
    native      the same by a native kernel for all components, which skips absent ones.
    native_shards  the same kernel on several devices, each with its own components.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from jaxtyping import Array, Bool, Float

from natmix.array_types import Scalar
from natmix.kernels import native
from natmix.kernels.forms import first_applicable, otherwise
from natmix.kernels.gaussian_batch import Curvature, GaussianBatch, TriangularFactors, triangular
from natmix.kernels.plan import Plan
from natmix.kernels.trust_region.cholesky import cholesky_search
from natmix.kernels.trust_region.eigen import eigen_search

Form = Literal["native", "native_shards", "eigen", "cholesky"]

_CPU_EIGEN_DIM = 30
_ACCELERATOR_EIGEN_DIM = 32
"""Dimensions up to which an eigen-decomposition beats a few Cholesky factorisations."""


class WhitenedStep(NamedTuple):
    """A step of each component, in whitened coordinates."""

    factor: Curvature
    """U with the new precision U U^T."""
    shift: Float[Array, "K D"]
    ok: Bool[Array, " K"]


def _many_dimensions(plan: Plan, gaussians: GaussianBatch) -> bool:
    return gaussians.dim > (_CPU_EIGEN_DIM if plan.on_cpu else _ACCELERATOR_EIGEN_DIM)


FORMS: tuple[tuple[Form, Callable[[Plan, GaussianBatch], bool]], ...] = (
    ("native", lambda plan, g: g.factors is not None and plan.native),
    ("native_shards", lambda plan, g: g.factors is not None and plan.native_kernels),
    ("cholesky", lambda plan, g: g.factors is not None and _many_dimensions(plan, g)),
    ("eigen", otherwise),
)


def choose(plan: Plan, gaussians: GaussianBatch) -> Form:
    """The native kernel for dense factors; without it, by the number of dimensions."""
    return first_applicable(FORMS, plan, gaussians)


def native_step(
    gaussians: GaussianBatch,
    A: Float[Array, "K D D"],
    a: Float[Array, "K D"],
    bound: Float[Array, " K"],
    usable: Bool[Array, " K"],
    temperature: Scalar,
    max_rounding: float,
) -> tuple[TriangularFactors, Bool[Array, " K"]]:
    """The updated Gaussians, and which of the usable ones were updated; the others are unchanged.

    An update also fails where rounding would move the new Gaussian's samples by more than ``max_rounding``
    standard deviations, and by more than the old one's.
    """
    m, L, W = triangular(gaussians)
    mean, L, W, ok = native.trust_region(A, a, bound, usable, temperature, max_rounding, m, L, W)
    return TriangularFactors(mean, L, W), ok


def whitened_step(
    form: Literal["eigen", "cholesky"],
    gaussians: GaussianBatch,
    A: Curvature,
    a: Float[Array, "K D"],
    bound: Float[Array, " K"],
    temperature: Scalar,
) -> WhitenedStep:
    """The step by XLA; A and a must be finite."""
    return _BY_XLA[form](gaussians, A, a, bound, temperature)


def _by_eigenvalues(
    gaussians: GaussianBatch,
    A: Curvature,
    a: Float[Array, "K D"],
    bound: Float[Array, " K"],
    temperature: Scalar,
) -> WhitenedStep:
    eigenvalues, basis = gaussians.spectrum(A)
    b = gaussians.into_basis(basis, a)
    step = eigen_search(eigenvalues, b, bound, temperature)
    U = gaussians.factor(gaussians.from_spectrum(step.gap / step.eta[:, None], basis))
    return WhitenedStep(U, gaussians.from_basis(basis, -b / step.gap), step.ok)


def _by_cholesky(
    gaussians: GaussianBatch,
    A: Curvature,
    a: Float[Array, "K D"],
    bound: Float[Array, " K"],
    temperature: Scalar,
) -> WhitenedStep:
    found = cholesky_search(A, a, bound, temperature)
    return WhitenedStep(found.factor, found.shift, found.ok)


_BY_XLA: dict[str, Callable[..., WhitenedStep]] = {"eigen": _by_eigenvalues, "cholesky": _by_cholesky}
