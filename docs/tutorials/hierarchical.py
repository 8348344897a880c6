# %% [markdown]
# # A hierarchical model, by natmix and by NUTS
#
# Test results of pupils in twelve schools: every school has a mean of its own, and the schools' means
# have a common distribution. NUTS is at home here. The tutorial compares the posteriors and counts
# what each method evaluates.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import natmix

rng = np.random.default_rng(0)
SCHOOLS = 12
SCHOOL = rng.integers(0, SCHOOLS, 150)
SCORE = 60 + 5 * rng.normal(size=SCHOOLS)[SCHOOL] + 8 * rng.normal(size=150)


def schools(school, score=None):
    """Scores of pupils in schools, whose means have a common distribution; not centred."""
    mu = numpyro.sample("mu", dist.Normal(50, 20))
    tau = numpyro.sample("tau", dist.HalfNormal(10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10))
    with numpyro.plate("schools", SCHOOLS):
        z = numpyro.sample("z", dist.Normal(0, 1))
    theta = numpyro.deterministic("theta", mu + tau * z)
    numpyro.sample("score", dist.Normal(theta[school], sigma), obs=score)


# %% [markdown]
# ## natmix

# %%
result = natmix.fit(schools, model_args=(jnp.array(SCHOOL), jnp.array(SCORE)))
print(result.diagnosis)

# %% [markdown]
# ## NUTS

# %%
mcmc = MCMC(
    NUTS(schools),
    num_warmup=1000,
    num_samples=2000,
    num_chains=2,
    chain_method="sequential",
    progress_bar=False,
)
mcmc.run(jax.random.key(0), jnp.array(SCHOOL), jnp.array(SCORE), extra_fields=("num_steps",))
chains = mcmc.get_samples()
steps = int(np.sum(mcmc.get_extra_fields()["num_steps"]))
print(
    f"NUTS: {steps:,} gradients after its warm-up, natmix: {result.counts.evaluations:,} evaluations in all"
)

# %% [markdown]
# ## Side by side

# %%
draws = result.sample(10_000)
print(f"{'':10}{'natmix':>18}{'NUTS':>18}")
for name in ("mu", "tau", "sigma"):
    ours, theirs = np.asarray(draws[name]), np.asarray(chains[name])
    print(f"{name:10}{ours.mean():10.2f} ± {ours.std():5.2f}{theirs.mean():10.2f} ± {theirs.std():5.2f}")

fig, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for shift, (label, theta) in zip(
    (-0.12, 0.12), {"natmix": draws["theta"], "NUTS": chains["theta"]}.items(), strict=True
):
    low, middle, high = np.quantile(np.asarray(theta), [0.05, 0.5, 0.95], axis=0)
    axes.errorbar(
        np.arange(SCHOOLS) + shift, middle, (middle - low, high - middle), fmt="o", ms=3, label=label
    )
axes.set(xlabel="school", ylabel="theta, 90% intervals", xticks=range(SCHOOLS))
legend = axes.legend()

# %%
for name in ("mu", "tau", "sigma", "theta"):
    ours, theirs = np.asarray(draws[name]), np.asarray(chains[name])
    width = theirs.std(axis=0)
    assert np.all(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 0.12 * width), name
    assert np.all(np.abs(ours.std(axis=0) / width - 1) < 0.12), name
assert result.diagnosis.verdict in ("trust", "unsearched")
