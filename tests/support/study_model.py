"""Targets for studies in processes of their own."""

import os
import signal

import jax
import jax.numpy as jnp

CENTRES = jnp.asarray([[-3.0, 0.0], [3.0, 1.0]])


def bumps(x):
    """Two Gaussians."""
    return jax.nn.logsumexp(-0.5 * jnp.sum((x - CENTRES) ** 2, axis=1))


def crashing():
    """Ends its process."""
    os.kill(os.getpid(), signal.SIGSEGV)


def diverging(x):
    """Has no density at all on one side."""
    return jnp.where(x[0] > 0, -jnp.inf, -0.5 * jnp.sum(x**2))
