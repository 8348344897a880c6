"""Log densities of N samples under K Gaussians and under their mixture.

Forms: those of `natmix.kernels.coordinates`, computed by XLA; and native, which keeps some samples in the
processor's registers and needs no temporary array. The native form is differentiated by XLA's forms.

Forms of reordering: gather, on one device; and recompute, on several, where each device computes those of its
own samples instead of sending N x K numbers around.
"""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count
from natmix.kernels import coordinates, native
from natmix.kernels.blocks import map_blocks
from natmix.kernels.coordinates import (
    Coordinates,
    barrier,
    choose_coordinates,
    circular_pairs,
    natural,
    quadratic_matrices,
    samples_per_block,
    stacked_whitened,
    upper_pairs,
    with_one,
)
from natmix.kernels.float64 import in_double
from natmix.kernels.forms import GaussianRows, PlanRows, first_applicable, otherwise
from natmix.kernels.gaussian_batch import LOG_2PI, GaussianBatch, triangular
from natmix.kernels.linalg import einsum
from natmix.kernels.plan import Plan, current

Form = Literal["native"] | Coordinates
ReorderForm = Literal["gather", "recompute"]

MANY_SAMPLES = 64
"""Native kernels are used from this number of samples on: for fewer a call costs more than it saves."""


def native_applies(plan: Plan, gaussians: GaussianBatch, samples: int) -> bool:
    """Whether native kernels apply: they need dense factors and enough samples."""
    return plan.native and gaussians.factors is not None and samples >= MANY_SAMPLES


FORMS: GaussianRows[Form] = (("native", native_applies), *coordinates.FORMS)
REORDER_FORMS: PlanRows[ReorderForm] = (("gather", lambda plan: plan.mesh is None), ("recompute", otherwise))


def choose(plan: Plan, gaussians: GaussianBatch, samples: int) -> Form:
    """Native kernels if they apply, otherwise the coordinates that are fastest on the device."""
    return first_applicable(FORMS, plan, gaussians, samples)


def choose_reorder(plan: Plan) -> ReorderForm:
    """By the number of devices alone."""
    return first_applicable(REORDER_FORMS, plan)


def log_prob(
    gaussians: GaussianBatch,
    x: Float[Array, "N D"],
    count: Count | None = None,
    present: Bool[Array, " K"] | None = None,
    form: Form | None = None,
) -> Float[Array, "N K"]:
    """Log N(x; m, S) of every sample under every component; undefined under absent components."""
    form = form or choose(current(), gaussians, x.shape[0])
    if form == "native":
        return _native_log_prob(gaussians, x, count, present)
    rows = samples_per_block(form, gaussians, x.shape[0], count)
    return map_blocks(Partial(_BLOCKS[form], gaussians), (x,), rows, count)


def relevant_log_prob(
    gaussians: GaussianBatch,
    x: Float[Array, "N D"],
    count: Count | None,
    log_weights: Float[Array, " K"],
    near: Int[Array, " N"],
    *,
    log_background: Float[Array, " N"] | None = None,
    log_drawn: Float[Array, " K"] | None = None,
    form: Form | None = None,
) -> Float[Array, "N K"]:
    """`log_prob`, or -inf where that is negligible in an iteration at working precision.

    A density is negligible if it is far below both the background z, by which importance weights divide, and
    the mixture's density. For any component o', n(o')/n q(x|o') is a lower bound of the former and
    q(o') q(x|o') of the latter. The weighted quantities are assumed to differ by less than 1e12 (1e21 in
    float64). One consequence: a component none of whose own samples has a usable target is left without
    weights, although distant samples would have tiny ones. Only the native form leaves anything out. There is
    no derivative.

    Args:
        gaussians: the components.
        x: samples.
        count: how many are real.
        log_weights: of the components, -inf for absent ones.
        near: a component that is probably near, for each sample.
        log_background: log z, if it is known; NaN for samples that are not in use.
        log_drawn: otherwise, log n(o)/n, each component's share of the samples.
        form: chosen by `choose` unless given.
    """
    form = form or choose(current(), gaussians, x.shape[0])
    if form != "native":
        return log_prob(gaussians, x, count, log_weights > -jnp.inf, form)
    share = log_weights if log_drawn is None else jnp.minimum(log_weights, log_drawn)
    z = jnp.full(x.shape[0], jnp.inf, x.dtype) if log_background is None else log_background
    m, _, W = triangular(gaussians)
    return native.relevant_log_prob(x, m, W, gaussians.log_normaliser(), log_weights, share, near, z, count)


def reordered(
    gaussians: GaussianBatch,
    log_densities: tuple[Float[Array, "R K"], Float[Array, "M K"]],
    order: Int[Array, " N"],
    x: Float[Array, "N D"],
    count: Count,
    present: Bool[Array, " K"],
    form: ReorderForm | None = None,
) -> Float[Array, "N K"]:
    """Log densities of old and new samples, reordered like the samples x."""
    form = form or choose_reorder(current())
    if form == "gather":
        return jnp.concatenate(log_densities)[order]
    return log_prob(gaussians, x, count, present)


def mixture_log_prob(
    gaussians: GaussianBatch,
    log_weights: Float[Array, " K"],
    x: Float[Array, "N D"],
    count: Count | None = None,
    form: Form | None = None,
) -> Float[Array, " N"]:
    """Log sum_k w_k N(x; m, S), without keeping an N x K array."""
    form = form or choose(current(), gaussians, x.shape[0])
    if form == "native":
        return _native_mixture_log_prob(gaussians, log_weights, x, count)
    rows = samples_per_block(form, gaussians, x.shape[0], count)
    block = Partial(_mixture_block, _BLOCKS[form], gaussians, log_weights)
    return map_blocks(block, (x,), rows, count)


# Native -----------------------------------------------------------------------------------------


@jax.custom_jvp
def _native_log_prob(gaussians: GaussianBatch, x: Array, count: Count | None, present: Array | None) -> Array:
    m, _, W = triangular(gaussians)
    return native.log_prob(x, m, W, gaussians.log_normaliser(), present, count)


@_native_log_prob.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    gaussians, x, count, present = primals

    def by_xla(gaussians: GaussianBatch, x: Array) -> Array:
        return log_prob(gaussians, x, count, present, choose_coordinates(current(), gaussians))

    return _native_log_prob(*primals), jax.jvp(by_xla, (gaussians, x), tangents[:2])[1]


@jax.custom_jvp
def _native_mixture_log_prob(
    gaussians: GaussianBatch, log_weights: Array, x: Array, count: Count | None
) -> Array:
    m, _, W = triangular(gaussians)
    return native.mixture_log_prob(x, m, W, gaussians.log_normaliser(), log_weights, count)


@_native_mixture_log_prob.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    gaussians, log_weights, x, count = primals

    def by_xla(gaussians: GaussianBatch, log_weights: Array, x: Array) -> Array:
        return mixture_log_prob(gaussians, log_weights, x, count, choose_coordinates(current(), gaussians))

    return _native_mixture_log_prob(*primals), jax.jvp(by_xla, (gaussians, log_weights, x), tangents[:3])[1]


# By XLA, for one block of samples ---------------------------------------------------------------


def _whitened(gaussians: GaussianBatch, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
    offset = gaussians.half_log_det() + 0.5 * gaussians.dim * LOG_2PI
    return (-0.5 * gaussians.squared_distances(x) - offset[:, None]).T


def _stacked(gaussians: GaussianBatch, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
    return _by_factors(_stacked_products, gaussians, x)


def _quadratic(gaussians: GaussianBatch, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
    return _by_factors(_upper_products, gaussians, x)


def _circular(gaussians: GaussianBatch, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
    return _by_factors(_circular_products, gaussians, x)


_BLOCKS: dict[str, Callable[[GaussianBatch, Array], Array]] = {
    "whitened": _whitened,
    "stacked": _stacked,
    "quadratic": _quadratic,
    "circular": _circular,
}


def _mixture_block(
    log_prob: Callable[[GaussianBatch, Array], Array],
    gaussians: GaussianBatch,
    log_weights: Float[Array, " K"],
    x: Float[Array, "B D"],
) -> Float[Array, " B"]:
    return jax.nn.logsumexp(log_prob(gaussians, x) + log_weights, axis=1)


def _by_factors(
    form: Callable[..., Array], gaussians: GaussianBatch, x: Float[Array, "B D"]
) -> Float[Array, "B K"]:
    m, _, W = triangular(gaussians)
    return _differentiable(form, x, m, W, gaussians.half_log_det())


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _differentiable(
    form: Callable[..., Array],
    x: Float[Array, "B D"],
    mean: Float[Array, "K D"],
    W: Float[Array, "K D D"],
    half_log_det: Float[Array, " K"],
) -> Float[Array, "B K"]:
    """Log densities with S^-1 = W^T W by ``form``, which need not be differentiable."""
    return form(x, mean, W, half_log_det)


@_differentiable.defjvp
def _(
    form: Callable[..., Array], primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[Array, Array]:
    def whitened(x: Array, mean: Array, W: Array, half_log_det: Array) -> Array:
        y = einsum("knj,kij->kni", x[None] - mean[:, None], W)
        return (-0.5 * jnp.sum(y * y, axis=-1) - half_log_det[:, None]).T

    return _differentiable(form, *primals), jax.jvp(whitened, primals, tangents)[1]


def _stacked_products(x: Array, mean: Array, W: Array, half_log_det: Array) -> Array:
    y = stacked_whitened(x, mean, W)
    return -0.5 * jnp.sum(y * y, axis=-1) - half_log_det - 0.5 * x.shape[1] * LOG_2PI


def _upper_products(x: Array, mean: Array, W: Array, half_log_det: Array) -> Array:
    return _upper_in_double(x, mean, W, half_log_det, *upper_pairs(x.shape[1]))


@in_double
def _upper_in_double(x: Array, mean: Array, W: Array, half_log_det: Array, *pairs: Array) -> Array:
    P, Pm = natural(mean, W)
    D, (first, second) = x.shape[1], pairs
    offset = -0.5 * einsum("ki,ki->k", Pm, mean) - half_log_det - 0.5 * D * LOG_2PI
    rows, cols = first[: -D - 1], second[: -D - 1]
    quadratic = P[:, rows, cols] * jnp.where(rows == cols, -0.5, -1.0)
    coefficients = jnp.concatenate([quadratic, Pm, offset[:, None]], axis=1)
    x = with_one(x)
    return barrier(einsum("kf,fn->kn", coefficients, x[first] * x[second])).T


def _circular_products(x: Array, mean: Array, W: Array, half_log_det: Array) -> Array:
    return _circular_in_double(x, mean, W, half_log_det, *circular_pairs(x.shape[1]))


@in_double
def _circular_in_double(x: Array, mean: Array, W: Array, half_log_det: Array, *pairs: Array) -> Array:
    P, Pm = natural(mean, W)
    offset = -0.5 * einsum("ki,ki->k", Pm, mean) - half_log_det - 0.5 * x.shape[1] * LOG_2PI
    rows, cols, _ = pairs
    E = x.shape[1] + 1
    # Of coordinates half a circle apart both orders of the pair occur.
    once = (rows == cols) | (2 * ((cols - rows) % E) == E)
    Q = quadratic_matrices(P, Pm, offset)[:, rows, cols] * jnp.where(once, 1.0, 2.0)
    z = with_one(x)
    products = (_shifted(z) * z).reshape(len(rows), -1)
    return einsum("kf,fn->kn", Q, products).T


def _shifted(z: Float[Array, "E B"]) -> Float[Array, "S E B"]:
    """Z with its coordinates shifted cyclically by 0 to E // 2."""
    # Repeated copies of z, cut into pieces of length E + 1: each piece starts one coordinate later.
    E = z.shape[0]
    S = E // 2 + 1
    over_and_over = jnp.tile(z, (-(-S * (E + 1) // E), 1))
    return over_and_over[: S * (E + 1)].reshape(S, E + 1, -1)[:, :E]
