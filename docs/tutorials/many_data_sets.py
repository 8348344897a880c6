# %% [markdown]
# # Many data sets
#
# One model, a hundred data sets: a rate is inferred from five counts, again and again. The first fit
# compiles, the others do not. The posterior is a Gamma distribution, so every answer can be checked.

# %%
import time

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

import natmix


def counts(y=None):
    """Five counts with the same rate."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    numpyro.sample("y", dist.Poisson(rate).expand([5]), obs=y)


rng = np.random.default_rng(0)
rates = rng.gamma(2.0, 2.0, 100)
datasets = [{"y": jnp.array(rng.poisson(rate, 5))} for rate in rates]

# %%
start = time.perf_counter()
fits = natmix.fit_many(counts, datasets, max_evaluations=10_000)
print(f"{len(fits)} fits in {time.perf_counter() - start:.0f} s")

# %% [markdown]
# The table of verdicts has a row for each fit. Here are the first ten.

# %%
print("\n".join(str(fits).splitlines()[:12]))

# %%
estimated = np.array([np.mean(fit.sample(2000)["rate"]) for fit in fits])
exact = np.array([stats.gamma(2 + int(d["y"].sum()), scale=1 / 5.5).mean() for d in datasets])
widths = np.array([stats.gamma(2 + int(d["y"].sum()), scale=1 / 5.5).std() for d in datasets])
fig, axes = plt.subplots(figsize=(4, 4), layout="constrained")
axes.plot(exact, estimated, ".")
axes.axline((0, 0), slope=1, color="0.5", lw=0.8)
labels = axes.set(xlabel="exact posterior mean", ylabel="natmix", aspect="equal")

# %%
worst = np.max(np.abs(estimated - exact) / widths)
print(f"largest error of a posterior mean: {worst:.3f} posterior standard deviations")
assert worst < 0.15
