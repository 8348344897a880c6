"""Ranks of simulation-based calibration, for a mean-field fit that is too narrow."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import natmix


def line(x, y=None):
    intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(intercept + slope * x, 0.5), obs=y)


x = jnp.asarray(np.random.default_rng(0).normal(2.0, 1.0, 20))
check = natmix.calibration.simulation_check(
    line,
    model_args=(x, jnp.zeros(20)),
    fits=60,
    algorithm="semtron",
    covariance="diagonal",
    init_components=1,
    start="region",
    max_evaluations=10_000,
)
figure = natmix.plot.plot_ranks(check)[0].figure
figure.savefig(Path(__file__).with_suffix(".png"), dpi=90)
