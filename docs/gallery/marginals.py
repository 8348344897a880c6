"""A panel for every coordinate: the mixture over samples of the target."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

import natmix


def log_density(x):
    return jnp.logaddexp(-0.5 * jnp.sum((x - 2) ** 2), -0.5 * jnp.sum((x + 2) ** 2 / 0.25) + jnp.log(8))


result = natmix.fit(log_density, dim=3, init_scale=3.0, max_evaluations=50_000)
rng = np.random.default_rng(0)
samples = np.concatenate([rng.normal(2, 1, (2000, 3)), rng.normal(-2, 0.5, (2000, 3))])
figure = natmix.plot.plot_marginals(result.mixture, samples)[0].figure
figure.savefig(Path(__file__).with_suffix(".png"), dpi=90)
