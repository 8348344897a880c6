"""A target for studies in processes of their own: compiles fast, and each iteration takes a while if asked."""

import os
import time

import jax
import jax.numpy as jnp

CENTRES = jnp.asarray([[-3.0, 0.0], [3.0, 1.0]])


def bumps(x):
    """Two Gaussians."""
    return jax.nn.logsumexp(-0.5 * jnp.sum((x - CENTRES) ** 2, axis=1))


def crashing():
    """Ends its process."""
    os.kill(os.getpid(), 11)


def diverging(x):
    """Has no density at all on one side."""
    return jnp.where(x[0] > 0, -jnp.inf, -0.5 * jnp.sum(x**2))


def slow(x):
    """The same as `bumps`; a point takes a millisecond."""

    def wait(value):
        time.sleep(1e-3)
        return value

    value = bumps(x)
    return value + 0 * jax.pure_callback(
        wait, jax.ShapeDtypeStruct((), value.dtype), jax.lax.stop_gradient(value)
    )
