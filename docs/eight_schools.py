"""Eight schools, a hierarchical model in NumPyro: fit, verdict and picture (docs/eight_schools.png)."""

from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpyro
import numpyro.distributions as dist

import natmix

matplotlib.use("Agg")

EFFECTS = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def schools(errors, effects=None):
    """Effects of coaching in eight schools, around a common mean, of unknown spread."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", len(errors)):
        z = numpyro.sample("z", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)


result = natmix.fit(schools, model_args=(ERRORS, EFFECTS))
print(result.summary())
result.plot(dims=["mu", "tau", "z[0]", "z[1]"]).figure.savefig(Path(__file__).with_suffix(".png"), dpi=100)
