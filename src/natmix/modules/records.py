"""The named records that travel between the modules.

Symbols: x samples, log p~ the target's log density, z the background density (the mixture of the
Gaussians that the samples were drawn from, weighted by how many each contributed), q the mixture.
"""

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count, PyTree
from natmix.kernels.gaussian_batch import Curvature


class Query(eqx.Module):
    """Points at which the algorithm wants the target. Only the first ``count`` are wanted."""

    points: Float[Array, "Q D"]
    count: Count
    draws: "Draws"
    """The first ``draws.count`` points again, with where they came from."""


class Draws(eqx.Module):
    """New samples of one iteration; only the first ``count`` are real."""

    x: Float[Array, "N D"]
    source: Int[Array, " N"]
    """The slot of the component each sample was drawn from."""
    number: Int[Array, " K"]
    """How many were drawn from each."""
    count: Count
    old: PyTree = None
    """The reused samples, if there are any; only the selector reads them."""


class Evaluation(eqx.Module):
    """The target at the points of a query; undefined beyond the query's count."""

    log_density: Float[Array, " Q"]
    gradient: Float[Array, "Q D"] | None


class Batch(eqx.Module):
    """The samples of one iteration, old and new, ready for the estimators; the first ``count`` are real."""

    x: Float[Array, "N D"]
    log_target: Float[Array, " N"]
    """log p~, always finite: where the density is zero it is a finite floor instead of -inf."""
    gradient: Float[Array, "N D"] | None
    """grad log p~, zero where invalid or where the density is zero."""
    log_background: Float[Array, " N"]
    """log z."""
    log_components: Float[Array, "N K"]
    """log q(x|o) under the components before this iteration's update, -inf where it is negligible."""
    near: Int[Array, " N"]
    """The slot that the sample was drawn from, now or earlier: its component is probably near."""
    source: Int[Array, " N"]
    """The slot of the component a sample was drawn from in this iteration, -1 for reused samples."""
    valid: Bool[Array, " N"]
    """Real samples with a usable target: no NaN, no +inf, and a finite gradient where it is needed."""
    zero: Bool[Array, " N"]
    """Valid samples with log p~ = -inf."""
    count: Count
    own: Int[Array, "K n"] | None = None
    """Indices of the samples that each component drew in this iteration, padded with -1; None without it."""


class NaturalGradient(eqx.Module):
    """Natural gradients of all components, in whitened coordinates.

    With R(x) = log p~(x) - T log q(x), G = -E[hess R] and g = -E[grad R] (in the paper's terms its
    matrix R is -G/2 and its vector r is G m - g) this holds A = L^T G L and a = L^T g.
    """

    curvature: Curvature
    """A."""
    gradient: Float[Array, "K D"]
    """a."""
    ok: Bool[Array, " K"]
    """False for a component without usable samples or without a finite estimate."""
