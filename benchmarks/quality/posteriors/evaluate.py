"""Log densities of many points, some at a time."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.models import NumpyroModel
from posteriors.symmetry import Points

_AT_ONCE = 1000


def log_densities(model: NumpyroModel, x: Points) -> Float[np.ndarray, " N"]:
    """The model's, in unconstrained coordinates."""
    found = jax.jit(lambda x: jax.lax.map(model.log_density, x, batch_size=_AT_ONCE))(jnp.asarray(x))
    return np.asarray(found, float)
