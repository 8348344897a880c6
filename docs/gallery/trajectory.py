"""The ELBO over evaluations."""

from pathlib import Path

import jax.numpy as jnp

import natmix


def log_density(x):
    ring = -0.5 * ((jnp.linalg.norm(x) - 3.0) / 0.4) ** 2
    bump = -0.5 * jnp.sum((x - jnp.array([5.0, 4.0])) ** 2)
    return jnp.logaddexp(ring, bump)


result = natmix.fit(log_density, dim=2, init_scale=4.0, max_evaluations=100_000)
figure = natmix.plot.plot_trajectory(result)[0].figure
figure.savefig(Path(__file__).with_suffix(".png"), dpi=90)
