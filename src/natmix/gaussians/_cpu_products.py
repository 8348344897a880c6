"""Products of coordinates in double precision, as a CPU does them soonest.

The samples come last, so that loops run along them, and numbers are widened once, before they are multiplied
with each other: the barriers keep the compiler from doing it anew for every product.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natmix._double import in_double
from natmix._linalg import einsum

_barrier = jax.lax.optimization_barrier


def quadratic_forms(
    x: Float[Array, "B D"],
    rows: Array,
    cols: Array,
    quadratic: Float[Array, "K F"],
    linear: Float[Array, "K D"],
) -> Float[Array, "B K"]:
    """sum_f quadratic_f x_i x_j + sum_i linear_i x_i, f being the pair (i, j); of doubles."""
    if quadratic.shape[0] > quadratic.shape[1]:  # the result is the large array
        return einsum("nf,kf->nk", x[:, rows] * x[:, cols], quadratic) + einsum("ni,ki->nk", x, linear)
    x = _barrier(x.T)
    return (einsum("kf,fn->kn", quadratic, x[rows] * x[cols]) + einsum("ki,in->kn", linear, x)).T


@in_double
def moment(x: Array, w: Array, v: Array, mean: Array) -> Array:
    """sum_n w (x - m) v^T."""
    K, D = mean.shape
    x, v, w = _barrier((x.T, v.T, w.T))
    features = jnp.concatenate([(x[:, None] * v[None]).reshape(D * D, -1), v])
    sums = einsum("fn,kn->kf", features, w)
    return sums[:, : D * D].reshape(K, D, D) - mean[:, :, None] * sums[:, None, D * D :]
