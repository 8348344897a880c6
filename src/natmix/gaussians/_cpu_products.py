"""Products of coordinates in double precision, as a CPU does them soonest.

The samples come last, so that loops run along them, and numbers are widened once, before they are multiplied
with each other: the barriers keep the compiler from doing it anew for every product.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natmix._linalg import einsum

_barrier = jax.lax.optimization_barrier


def quadratic_forms(
    x: Float[Array, "B D"],
    rows: Int[Array, " F"],
    cols: Int[Array, " F"],
    quadratic: Float[Array, "K F"],
    linear: Float[Array, "K D"],
) -> Float[Array, "B K"]:
    """sum_f quadratic_f x_i x_j + sum_i linear_i x_i, f being the pair (i, j); of doubles."""
    if quadratic.shape[0] > quadratic.shape[1]:  # the result is the large array
        return einsum("nf,kf->nk", x[:, rows] * x[:, cols], quadratic) + einsum("ni,ki->nk", x, linear)
    x = _barrier(x.T)
    return (einsum("kf,fn->kn", quadratic, x[rows] * x[cols]) + einsum("ki,in->kn", linear, x)).T


def score(
    x: Float[Array, "B D"],
    r: Float[Array, "B K"],
    P: Float[Array, "K D D"],
    Pm: Float[Array, "K D"],
    rows: Int[Array, " F"],
    cols: Int[Array, " F"],
    places: Int[Array, " DD"],
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
