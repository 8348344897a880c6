"""The mean prediction of a Bayesian model over samples of its approximate posterior."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike

from natmix.array_types import KeyLike
from natmix.kernels.blocks import block_rows, sum_blocks
from natmix.mixture import Mixture

Predict = Callable[[Float[Array, " D"], Any], Float[Array, " N"]]
"""From one vector of parameters and the features of N cases to N numbers."""


def mean_prediction(
    predict: Predict, mixture: Mixture, key: KeyLike, features: Any, wanted: ArrayLike, samples: int
) -> tuple[Float[Array, " N"], Shaped[Array, " N"]]:
    """(1/n) sum_i predict(x_i, features), x_i from the mixture, and what was ``wanted`` as an array."""
    if samples < 1:
        raise ValueError(f"An estimate needs at least one sample, got {samples}.")
    truth = jnp.asarray(wanted)
    x = mixture.sample(samples, key=key)
    shape = eqx.filter_eval_shape(predict, x[0], features).shape
    if truth.ndim != 1 or shape != truth.shape:
        raise ValueError(
            f"The model must return one number per case: for targets of shape {list(truth.shape)} "
            f"it returns shape {list(shape)}."
        )
    return _sum(predict, x, features) / samples, truth


@eqx.filter_jit
def _sum(predict: Predict, x: Float[Array, "n D"], features: Any) -> Float[Array, " N"]:
    cases = jax.eval_shape(predict, x[0], features).shape[0]

    def block(x: Float[Array, "B D"], real: Float[Array, " B"]) -> Float[Array, " N"]:
        outputs = jax.vmap(lambda one: predict(one, features))(x)
        return jnp.sum(jnp.where(real[:, None] > 0, outputs, 0), axis=0)

    rows = block_rows(16 * cases)  # room for the layers of a small network
    return sum_blocks(block, (x, jnp.ones(x.shape[0], x.dtype)), rows)
