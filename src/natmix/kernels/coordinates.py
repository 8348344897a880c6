"""The coordinates in which log densities, scores and Stein's sums are computed.

Four forms give the same numbers:

    whitened    y = L^-1 (x - m) for every component and sample. Accurate in any precision, for covariances
                of any kind; its arrays have K N D entries.
    stacked     y = L^-1 x - L^-1 m, one product with K D columns, where the whitened form has K products with
                D columns; it leaves y in the order in which sums over components and over samples want it.
                The difference cancels, so it is formed in float64.
    quadratic   log N(x; m, S) is linear in the products x_i x_j, so that everything is a few large matrix
                products without an array of K N D entries. The products cancel, so they are formed in
                float64, which costs little beside the memory saved. Samples are the last axis, so that loops
                run along them. Numbers are converted to float64 once, before the products: barriers keep the
                compiler from converting them for every product, and from writing a matrix product transposed,
                which is slower than transposing it afterwards. The fastest on a CPU.
    circular    the same for accelerators. With z = (x, 1) a log density is z^T Q z. Half of Q's entries are
                enough: the pairs (i, i + s) for shifts s of up to half the length, coordinates counted in a
                circle. Their products are z times z shifted, which needs no table of indices. Samples are the
                last axis, so that neighbouring threads read neighbouring numbers: barriers and a constraint
                keep the compiler from choosing another layout.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.kernels.blocks import block_rows, skipping
from natmix.kernels.float64 import in_double
from natmix.kernels.forms import GaussianRows, first_applicable, otherwise
from natmix.kernels.gaussian_batch import GaussianBatch
from natmix.kernels.linalg import einsum
from natmix.kernels.plan import Plan

Coordinates = Literal["whitened", "stacked", "quadratic", "circular"]

_CPU_QUADRATIC = 40
_ACCELERATOR_QUADRATIC = 64
"""Dimensions up to which products of coordinates beat whitened coordinates."""

barrier = jax.lax.optimization_barrier


def products_apply(plan: Plan, gaussians: GaussianBatch, samples: int = 0) -> bool:
    """Whether products of coordinates can be used and pay: they need fast float64 and dense factors."""
    limit = _CPU_QUADRATIC if plan.on_cpu else _ACCELERATOR_QUADRATIC
    return gaussians.factors is not None and plan.fast_float64 and gaussians.dim <= limit


FORMS: GaussianRows[Coordinates] = (
    ("quadratic", lambda plan, gaussians, n: plan.on_cpu and products_apply(plan, gaussians)),
    ("circular", products_apply),
    ("stacked", lambda plan, g, n: not plan.on_cpu and plan.fast_float64 and g.factors is not None),
    ("whitened", otherwise),
)
"""The forms that compute all pairs of a sample and a component."""


def choose_coordinates(plan: Plan, gaussians: GaussianBatch, samples: int = 0) -> Coordinates:
    """The coordinates that are fastest on the device."""
    return first_applicable(FORMS, plan, gaussians, samples)


def samples_per_block(form: str, gaussians: GaussianBatch, samples: int, count: Array | None) -> int:
    """How many samples to handle at once."""
    K, D = gaussians.capacity, gaussians.dim
    elements = {
        "whitened": 2 * K * D,
        "stacked": 3 * K * D,
        "quadratic": 2 * K + 2 * D * (D + 1),
        "circular": 2 * K + 2 * D * (D + 1),
    }
    return skipping(block_rows(elements[form]), samples, count)


@in_double
def stacked_whitened(
    x: Float[Array, "B D"], mean: Float[Array, "K D"], W: Float[Array, "K D D"]
) -> Float[Array, "B K D"]:
    """Y = W x - W m."""
    return einsum("bj,kij->bki", x, W) - einsum("kij,kj->ki", W, mean)


def natural(
    mean: Float[Array, "K D"], W: Float[Array, "K D D"]
) -> tuple[Float[Array, "K D D"], Float[Array, "K D"]]:
    """S^-1 and S^-1 m with S^-1 = W^T W."""
    P = einsum("kai,kaj->kij", W, W)
    return P, einsum("kij,kj->ki", P, mean)


def upper_pairs(dim: int) -> tuple[Int[Array, " F"], Int[Array, " F"]]:
    """The pairs of (x, 1) of the quadratic form: two coordinates, a coordinate and 1, 1 and 1."""
    rows, cols = np.triu_indices(dim)
    first = np.concatenate([rows, np.arange(dim + 1)])
    second = np.concatenate([cols, np.full(dim + 1, dim)])
    return jnp.asarray(first, jnp.int32), jnp.asarray(second, jnp.int32)


def circular_pairs(dim: int) -> tuple[Int[Array, " F"], Int[Array, " F"], Int[Array, " DE"]]:
    """The pairs that represent Q, and at which of them the entries of its first D rows are."""
    E = dim + 1
    shifts, rows = np.divmod(np.arange((E // 2 + 1) * E), E)
    cols = (rows + shifts) % E
    places = np.zeros((E, E), int)
    places[rows, cols] = places[cols, rows] = np.arange(len(rows))
    return (
        jnp.asarray(rows, jnp.int32),
        jnp.asarray(cols, jnp.int32),
        jnp.asarray(places[:-1].ravel(), jnp.int32),
    )


def quadratic_matrices(
    P: Float[Array, "K D D"], Pm: Float[Array, "K D"], offset: Float[Array, " K"]
) -> Float[Array, "K E E"]:
    """Q with z^T Q z = -x^T P x / 2 + x^T P m + offset."""
    upper = jnp.concatenate([-0.5 * P, 0.5 * Pm[:, :, None]], axis=2)
    lower = jnp.concatenate([0.5 * Pm, offset[:, None]], axis=1)
    return jnp.concatenate([upper, lower[:, None]], axis=1)


def with_one(x: Float[Array, "B D"]) -> Float[Array, "E B"]:
    """Z = (x, 1), samples last."""
    return barrier(jnp.concatenate([x.T, jnp.ones((1, x.shape[0]), x.dtype)]))
