"""The example of the README: run it to make docs/example.png."""

import jax.numpy as jnp

import natmix
from natmix.plot import plot_fit_2d


def log_density(x):
    """A ring around the origin and a bump beside it; the normaliser need not be known."""
    ring = -0.5 * ((jnp.linalg.norm(x) - 3.0) / 0.4) ** 2
    bump = -0.5 * jnp.sum((x - jnp.array([5.0, 4.0])) ** 2)
    return jnp.logaddexp(ring, bump)


result = natmix.fit(log_density, dim=2, seed=0, init_scale=4.0)
print(result.summary())
plot_fit_2d(result, log_density).figure.savefig("docs/example.png")
