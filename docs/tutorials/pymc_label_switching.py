# %% [markdown]
# # A PyMC mixture with label switching
#
# A mixture of three Gaussians with free labels: each of the 3! = 6 ways to name the components is a
# mode of the posterior. They all have the same share. A chain stays at one of them. natmix finds all
# six and says that they are permutations of each other.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import natmix

warnings.filterwarnings("ignore", module="arviz|pytensor")

rng = np.random.default_rng(3)
y = np.concatenate([rng.normal(-4, 1, 30), rng.normal(0, 1, 40), rng.normal(4, 1, 30)])

with pm.Model() as model:
    weight = pm.Dirichlet("weight", np.full(3, 4.0))
    mu = pm.Normal("mu", 0, 5, shape=3)
    sigma = pm.HalfNormal("sigma", 2)
    pm.NormalMixture("y", w=weight, mu=mu, sigma=sigma, observed=y)

# %%
result = natmix.fit(model)
print(result.diagnosis)

# %% [markdown]
# The modes are where they should be, each with a sixth of the mass:

# %%
shares = np.array([mode.corrected_share for mode in result.diagnosis.modes[:6]])
print(np.round(shares, 3))

# %% [markdown]
# Moments of `mu[0]` describe none of them. Order the means of each draw, and the labels are gone.

# %%
draws = result.sample(4000)
ordered = np.sort(draws["mu"], axis=1)
print("means in order:", ordered.mean(axis=0).round(2), "±", ordered.std(axis=0).round(2))

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharex=True)
for i in range(3):
    axes[0].hist(draws["mu"][:, i], bins=80, histtype="step", label=f"mu[{i}]")
    axes[1].hist(ordered[:, i], bins=80, histtype="step", label=f"mean {i + 1}")
axes[0].set_title("as the model names them")
axes[1].set_title("in order")
for ax in axes:
    ax.set_yticks([])
    ax.legend()

# %%
assert result.diagnosis.trusted
assert np.all(np.abs(shares - 1 / 6) < 0.02)
assert np.all(np.abs(ordered.mean(axis=0) - [-4, 0, 4]) < 0.5)
