"""Marginals and pairs of a model's variables, by name."""

from pathlib import Path

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import natmix

EFFECTS = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def schools(effects=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([8]))
    numpyro.sample("effects", dist.Normal(mu + tau * z, ERRORS), obs=effects)


result = natmix.fit(schools, model_args=(EFFECTS,), max_evaluations=50_000)
figure = natmix.plot.plot_corner(result, dims=["mu", "tau"]).flat[0].figure
figure.savefig(Path(__file__).with_suffix(".png"), dpi=90)
