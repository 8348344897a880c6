# %% [markdown]
# # NUTS on a posterior with two modes
#
# The model of the README, by both methods. Four chains of NUTS run with six seeds. A chain that has
# found one period does not leave it. If all four find the same one, r-hat is fine and half of the
# posterior is missing. natmix starts with L-BFGS runs from several points and knows both modes.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import summary
from numpyro.infer import MCMC, NUTS

import natmix

DAY = jnp.array([0.6, 2.6, 3.0, 10.0, 12.0, 18.6])
VELOCITY = jnp.array([6.1, -3.2, -3.0, -2.7, 5.4, -4.7])
BETWEEN = 4.6  # days: one mode has shorter periods, the other longer ones


def orbit(day, velocity=None):
    """Velocities of a star with a companion: a wave of unknown period."""
    period = numpyro.sample("period", dist.Uniform(3, 9))
    wave = numpyro.sample("wave", dist.Normal(0, 5).expand([2]))
    angle = 2 * jnp.pi * day / period
    mean = wave[0] * jnp.sin(angle) + wave[1] * jnp.cos(angle)
    numpyro.sample("velocity", dist.Normal(mean, 2.0), obs=velocity)


# %% [markdown]
# ## NUTS
#
# 1000 draws of each of four chains. The table has each chain's share of short periods, and r-hat of
# the period.

# %%
hidden = 0
for seed in range(6):
    mcmc = MCMC(
        NUTS(orbit),
        num_warmup=1000,
        num_samples=1000,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), DAY, VELOCITY)
    periods = np.asarray(mcmc.get_samples(group_by_chain=True)["period"])
    shares = np.mean(periods < BETWEEN, axis=1)
    r_hat = summary({"period": periods})["period"]["r_hat"]
    hidden += np.ptp(shares) < 0.5
    print(f"seed {seed}: {shares}, r-hat {r_hat:.2f}")
    assert np.all((shares < 0.01) | (shares > 0.99)), "a chain that visits both modes"
print(f"{hidden} of 6 runs have all chains at one mode.")

# %% [markdown]
# ## natmix

# %%
result = natmix.fit(orbit, model_args=(DAY, VELOCITY))
print(result.diagnosis)
short = np.mean(result.sample(20_000)["period"] < BETWEEN)
print(f"P(period < {BETWEEN} days): {short:.3f}")

# %%
figure = result.plot().figure

# %% [markdown]
# The exact answer, by quadrature as in [the tutorial with Stan](stan_period.ipynb), is 0.569.

# %%
assert result.diagnosis.trusted
assert abs(short - 0.569) < 0.02
