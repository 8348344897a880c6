"""Evaluate a problem's target, compiled as a whole."""

import equinox as eqx
import jax
import jax.numpy as jnp


def evaluate(target, x, seed=0, gradient=True):
    """Log density and gradient at points, in their own type."""
    return _evaluate(target, jax.random.key(seed), jnp.asarray(x), gradient)


@eqx.filter_jit
def _evaluate(target, key, x, gradient):
    return target.evaluate(key, x, x.shape[0], gradient)
