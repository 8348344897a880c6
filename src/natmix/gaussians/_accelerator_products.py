"""Products of coordinates in double precision, as an accelerator does them soonest.

The samples come last, so that threads side by side read numbers side by side: the barriers keep the compiler
from reading them as they lay before. A symmetric matrix is its upper triangle, half as many numbers to form.
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
    x = _barrier(x.T)
    features = jnp.concatenate([x[rows] * x[cols], x])
    return einsum("kf,fn->kn", jnp.concatenate([quadratic, linear], axis=1), features).T


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
    D = x.shape[1]
    x = _barrier(x.T)
    sums = einsum("kf,nk->fn", jnp.concatenate([P[:, rows, cols], Pm], axis=1), r)
    return (sums[-D:] - jnp.sum(sums[places].reshape(D, D, -1) * x, axis=1)).T


def cross_sums(
    x: Float[Array, "B D"], w: Float[Array, "B K"], v: Float[Array, "B D"]
) -> Float[Array, "K DD+D"]:
    """sum_n w x v^T and, beside it, sum_n w v; of doubles."""
    D = x.shape[1]
    features = jnp.concatenate([(x[:, :, None] * v[:, None, :]).reshape(-1, D * D), v], axis=1)
    return einsum("nk,nf->kf", w, features)
