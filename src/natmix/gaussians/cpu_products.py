"""Products of coordinates in double precision, as a CPU does them soonest.

The samples come last, so that loops run along them, and numbers are widened once, before they are multiplied
with each other: the barriers keep the compiler from doing it anew for every product, and from having a matrix
product write its result transposed, which takes longer than to transpose it.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.kernels.linalg import einsum

_barrier = jax.lax.optimization_barrier


def indices(dim: int) -> tuple[Int[Array, " F"], Int[Array, " F"]]:
    """The pairs of (x, 1) whose products are formed: two coordinates, a coordinate and 1, 1 and 1."""
    rows, cols = np.triu_indices(dim)
    first = np.concatenate([rows, np.arange(dim + 1)])
    second = np.concatenate([cols, np.full(dim + 1, dim)])
    return jnp.asarray(first, jnp.int32), jnp.asarray(second, jnp.int32)


def log_prob(
    x: Float[Array, "B D"],
    P: Float[Array, "K D D"],
    Pm: Float[Array, "K D"],
    offset: Float[Array, " K"],
    first: Int[Array, " F"],
    second: Int[Array, " F"],
) -> Float[Array, "B K"]:
    """-x^T P x / 2 + x^T P m + offset, one product; of doubles."""
    D = x.shape[1]
    rows, cols = first[: -D - 1], second[: -D - 1]
    quadratic = P[:, rows, cols] * jnp.where(rows == cols, -0.5, -1.0)
    coefficients = jnp.concatenate([quadratic, Pm, offset[:, None]], axis=1)
    x = _barrier(jnp.concatenate([x.T, jnp.ones((1, x.shape[0]), x.dtype)]))
    return _barrier(einsum("kf,fn->kn", coefficients, x[first] * x[second])).T


def score(
    x: Float[Array, "B D"],
    r: Float[Array, "B K"],
    P: Float[Array, "K D D"],
    Pm: Float[Array, "K D"],
    *_: Array,
) -> Float[Array, "B D"]:
    """sum_k r (P m - P x); of doubles."""
    K, D = Pm.shape
    mean_precision = einsum("nk,kf->nf", r, P.reshape(K, D * D)).reshape(-1, D, D)
    return einsum("nk,ki->ni", r, Pm) - einsum("nij,nj->ni", mean_precision, x)


def cross_sums(
    x: Float[Array, "B D"], w: Float[Array, "B K"], v: Float[Array, "B D"]
) -> Float[Array, "K D*D+D"]:
    """sum_n w x v^T and, beside it, sum_n w v; of doubles."""
    D = x.shape[1]
    x, v, w = _barrier((x.T, v.T, w.T))
    features = jnp.concatenate([(x[:, None] * v[None]).reshape(D * D, -1), v])
    return einsum("fn,kn->kf", features, w)
