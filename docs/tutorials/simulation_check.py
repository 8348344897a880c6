# %% [markdown]
# # Simulation-based calibration
#
# Can such fits be right? Parameters and data are simulated, fitted again, and recovered or not.
#
# The model is a line through points far from zero: slope and intercept are strongly correlated. One
# Gaussian without correlations, as in mean-field variational inference, must be too narrow. The
# default mixture need not be.

# %%
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from natmix.calibration import simulation_check


def line(x, y=None):
    """A straight line with noise."""
    intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    noise = numpyro.sample("noise", dist.LogNormal(-1, 0.5))
    numpyro.sample("y", dist.Normal(intercept + slope * x, noise), obs=y)


x = jnp.asarray(np.random.default_rng(0).normal(2.0, 1.0, 20))
given = {"model_args": (x, jnp.zeros(20)), "fits": 50, "max_evaluations": 20_000}

# %% [markdown]
# ## One Gaussian without correlations

# %%
mean_field = {"algorithm": "semtron", "covariance": "diagonal", "init_components": 1, "start": "region"}
narrow = simulation_check(line, **given, **mean_field)
print(narrow)

# %%
figure = narrow.plot()[0].figure

# %% [markdown]
# ## The default

# %%
right = simulation_check(line, **given)
print(right)

# %%
assert {p.name for p in narrow.flagged} == {"intercept", "slope"}
assert all(p.wrong_width and p.spread.value > 1.5 for p in narrow.flagged)
assert right.passed
