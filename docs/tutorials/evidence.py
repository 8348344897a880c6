# %% [markdown]
# # The evidence of two models
#
# A line or a parabola: which one do the data prefer? Both are linear with Gaussian coefficients and
# noise, so the evidence has a closed form to compare with.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

import natmix

X = np.linspace(-1, 1, 25)
Y = 0.5 + 1.2 * X - 0.6 * X**2 + 0.3 * np.random.default_rng(1).normal(size=25)
NOISE = 0.3


def polynomial(degree, y=None):
    """Powers of x with standard normal coefficients."""
    powers = jnp.asarray(X[:, None] ** np.arange(degree + 1))
    coefficients = numpyro.sample("coefficients", dist.Normal(0, 1).expand([degree + 1]))
    numpyro.sample("y", dist.Normal(powers @ coefficients, NOISE), obs=y)


def exact(degree):
    """The evidence of a linear model with Gaussian coefficients and noise."""
    powers = X[:, None] ** np.arange(degree + 1)
    return stats.multivariate_normal(np.zeros(25), powers @ powers.T + NOISE**2 * np.eye(25)).logpdf(Y)


# %% [markdown]
# ## One fit for each model

# %%
fits = {}
for degree in (1, 2):
    result = natmix.fit(polynomial, model_args=(degree,), model_kwargs={"y": Y})
    evidence = result.diagnosis.log_evidence
    print(f"degree {degree}: log evidence {evidence}, exactly {exact(degree):.4f}")
    assert result.diagnosis.trusted
    assert abs(evidence.value - exact(degree)) < 0.02
    fits[f"degree {degree}"] = result

# %% [markdown]
# ## Which one is better?
#
# `natmix.compare` has log evidences, Bayes factors and the probabilities of the models, with their
# errors.

# %%
comparison = natmix.compare(fits)
print(comparison)
factor = -comparison.log_bayes_factors[1].value
print(f"log Bayes factor of {comparison.best}: {factor:.3f} (exactly {abs(exact(2) - exact(1)):.3f})")

# %%
fig, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.plot(X, Y, "k.", label="data")
for color, (name, fitted) in zip(("tab:orange", "tab:blue"), fits.items(), strict=True):
    coefficients = fitted.sample(500)["coefficients"]
    curves = coefficients @ (X[:, None] ** np.arange(coefficients.shape[1])).T
    low, high = np.quantile(curves, [0.05, 0.95], axis=0)
    axes.fill_between(X, low, high, color=color, alpha=0.3, label=f"{name}, 90%")
axes.set(xlabel="x", ylabel="y")
legend = axes.legend()

# %%
assert comparison.best == ("degree 2" if exact(2) > exact(1) else "degree 1")
assert abs(factor - abs(exact(2) - exact(1))) < 0.03
