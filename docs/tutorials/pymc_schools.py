# %% [markdown]
# # A PyMC model
#
# Eight schools: fitted, checked, handed on to ArviZ, and as a start for PyMC's own sampler.

# %%
import warnings

import numpy as np
import pymc as pm

import natmix

warnings.filterwarnings("ignore", module="arviz|pytensor")

EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

with pm.Model() as schools:
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    z = pm.Normal("z", 0, 1, shape=8)
    theta = pm.Deterministic("theta", mu + tau * z)
    pm.Normal("effect", theta, ERRORS, observed=EFFECTS)

# %% [markdown]
# The model is taken as it is. Its log density is compiled for JAX, in double precision.

# %%
result = natmix.fit(schools)
print(result.diagnosis)
print(result.to_pandas().head(4).round(2))

# %% [markdown]
# ArviZ's tables and plots work on the fit as on any posterior.

# %%
data = result.to_arviz()
print(data.posterior["theta"].mean(("chain", "draw")).round(1))

# %% [markdown]
# Importance weights correct the draws. This matters where the verdict is worse than here.

# %%
corrected = result.resample(4000)
print(f"mean of tau: {result.sample(20_000)['tau'].mean():.2f}, corrected {corrected['tau'].mean():.2f}")

# What will a parallel experiment show in these schools?
first = result.predict(2000)["effect"][:, 0]
print(f"next effect in the first school: {first.mean():.1f} ± {first.std():.1f}")

# %% [markdown]
# PyMC's own sampler can start from the mixture. Its short warm-up starts inside the posterior.

# %%
with schools:
    chains = pm.sample(
        100, tune=100, chains=2, cores=1, initvals=result.sampler_start(2).initvals, progressbar=False
    )
print(
    f"mean of mu: {float(chains.posterior['mu'].mean()):.1f} by NUTS, {result.sample(2000)['mu'].mean():.1f}"
)

# %%
assert result.diagnosis.trusted
