"""Products of coordinates in double precision, as a CPU does them soonest.

The samples come last, so that loops run along them, and numbers are widened once, before they are multiplied
with each other: the barriers keep the compiler from doing it anew for every product.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix._linalg import einsum

_barrier = jax.lax.optimization_barrier


def indices(dim: int) -> tuple[Int[Array, " F"], Int[Array, " F"]]:
    """The pairs of coordinates whose products are formed: the upper triangle."""
    rows, cols = np.triu_indices(dim)
    return jnp.asarray(rows, jnp.int32), jnp.asarray(cols, jnp.int32)


def log_prob(
    x: Float[Array, "B D"],
    P: Float[Array, "K D D"],
    Pm: Float[Array, "K D"],
    offset: Float[Array, " K"],
    rows: Int[Array, " F"],
    cols: Int[Array, " F"],
) -> Float[Array, "B K"]:
    """-x^T P x / 2 + x^T P m + offset; of doubles."""
    quadratic = P[:, rows, cols] * jnp.where(rows == cols, -0.5, -1.0)
    if quadratic.shape[0] > quadratic.shape[1]:  # the result is the large array
        return einsum("nf,kf->nk", x[:, rows] * x[:, cols], quadratic) + einsum("ni,ki->nk", x, Pm) + offset
    x = _barrier(x.T)
    return (einsum("kf,fn->kn", quadratic, x[rows] * x[cols]) + einsum("ki,in->kn", Pm, x)).T + offset


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
) -> Float[Array, "K DD+D"]:
    """sum_n w x v^T and, beside it, sum_n w v; of doubles."""
    D = x.shape[1]
    x, v, w = _barrier((x.T, v.T, w.T))
    features = jnp.concatenate([(x[:, None] * v[None]).reshape(D * D, -1), v])
    return einsum("fn,kn->kf", features, w)
