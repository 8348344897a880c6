"""The density of a target, and the components of a mixture over it."""

from pathlib import Path

import jax.numpy as jnp

import natmix


def log_density(x):
    ring = -0.5 * ((jnp.linalg.norm(x) - 3.0) / 0.4) ** 2
    bump = -0.5 * jnp.sum((x - jnp.array([5.0, 4.0])) ** 2)
    return jnp.logaddexp(ring, bump)


result = natmix.fit(log_density, dim=2, init_scale=4.0, max_evaluations=100_000)
axes = natmix.plot.plot_density_2d(log_density, (-5.0, 9.0, -5.0, 8.0))
natmix.plot.plot_components_2d(result.mixture, ax=axes)
figure = axes.figure
figure.savefig(Path(__file__).with_suffix(".png"), dpi=90)
