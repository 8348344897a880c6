"""Products of coordinates in double precision, as an accelerator does them soonest.

With z = (x, 1) a log density is z^T Q z, one symmetric matrix for each Gaussian. Half of its entries are
enough: the pairs (i, i + s) for shifts s of up to half the length, coordinates counted in a circle. Their
products are z times z shifted, in which no index has to be looked up.

The samples come last, so that threads side by side read numbers side by side: barriers and a constraint keep
the compiler from reading them as they lay before or shall lie after.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float, Int

from natmix.kernels.linalg import einsum

_barrier = jax.lax.optimization_barrier


def indices(dim: int) -> tuple[Int[Array, " F"], Int[Array, " F"], Int[Array, " DE"]]:
    """The pairs that stand for Q, and where they hold the entries of its first D rows."""
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


def log_prob(
    x: Float[Array, "B D"],
    P: Float[Array, "K D D"],
    Pm: Float[Array, "K D"],
    offset: Float[Array, " K"],
    rows: Int[Array, " F"],
    cols: Int[Array, " F"],
    *_: Array,
) -> Float[Array, "B K"]:
    """-x^T P x / 2 + x^T P m + offset; of doubles."""
    E = x.shape[1] + 1
    once = (rows == cols) | (2 * ((cols - rows) % E) == E)  # half a circle apart: both ways round are there
    Q = _matrices(P, Pm, offset)[:, rows, cols] * jnp.where(once, 1.0, 2.0)
    z = _with_one(x)
    products = (_shifted(z) * z).reshape(len(rows), -1)
    return einsum("kf,fn->kn", Q, products).T


def score(
    x: Float[Array, "B D"],
    r: Float[Array, "B K"],
    P: Float[Array, "K D D"],
    Pm: Float[Array, "K D"],
    rows: Int[Array, " F"],
    cols: Int[Array, " F"],
    places: Int[Array, " DE"],
) -> Float[Array, "B D"]:
    """sum_k r (P m - P x), the gradient 2 Q z; of doubles."""
    D = x.shape[1]
    Q = _matrices(P, Pm, jnp.zeros_like(Pm[:, 0]))[:, rows, cols]
    sums = einsum("kf,nk->fn", Q, r)
    places = places.reshape(D, D + 1)
    total = sum(sums[places[:, j]] * z for j, z in enumerate(_with_one(x)))
    return 2 * _barrier(with_layout_constraint(total, Layout((0, 1)))).T


def cross_sums(
    x: Float[Array, "B D"], w: Float[Array, "B K"], v: Float[Array, "B D"]
) -> Float[Array, "K D*D+D"]:
    """sum_n w x v^T and, beside it, sum_n w v; of doubles."""
    D = x.shape[1]
    features = jnp.concatenate([(x[:, :, None] * v[:, None, :]).reshape(-1, D * D), v], axis=1)
    return einsum("nk,nf->kf", w, features)


def _matrices(
    P: Float[Array, "K D D"], Pm: Float[Array, "K D"], offset: Float[Array, " K"]
) -> Float[Array, "K E E"]:
    upper = jnp.concatenate([-0.5 * P, 0.5 * Pm[:, :, None]], axis=2)
    lower = jnp.concatenate([0.5 * Pm, offset[:, None]], axis=1)
    return jnp.concatenate([upper, lower[:, None]], axis=1)


def _with_one(x: Float[Array, "B D"]) -> Float[Array, "E B"]:
    return _barrier(jnp.concatenate([x.T, jnp.ones((1, x.shape[0]), x.dtype)]))


def _shifted(z: Float[Array, "E B"]) -> Float[Array, "S E B"]:
    """Z with its coordinates moved on by 0 to E // 2."""
    # Rows of E + 1 begin one place further on each time when they are cut from z over and over.
    E = z.shape[0]
    S = E // 2 + 1
    over_and_over = jnp.tile(z, (-(-S * (E + 1) // E), 1))
    return over_and_over[: S * (E + 1)].reshape(S, E + 1, -1)[:, :E]
