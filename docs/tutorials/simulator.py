# %% [markdown]
# # A simulator without gradients
#
# An epidemic in NumPy, its rates inferred from noisy counts. natmix calls the simulator outside JAX,
# many parameters at a time, and estimates natural gradients from the values alone (MORE, the letter
# Z).

# %%
import numpy as np

import natmix

DAYS, STEPS, PEOPLE = 60, 4, 1000.0


def epidemic(rates):
    """Susceptible, infected, recovered: new cases per day for rates [n, 2] of infection and recovery."""
    infection, recovery = np.exp(rates).T
    susceptible = np.full(len(rates), PEOPLE - 5)
    infected = np.full(len(rates), 5.0)
    cases = np.zeros((len(rates), DAYS))
    for day in range(DAYS):
        for _ in range(STEPS):
            new = infection * susceptible * infected / PEOPLE / STEPS
            new = np.minimum(new, susceptible)
            susceptible = susceptible - new
            infected = infected + new - np.minimum(recovery / STEPS, 1) * infected
            cases[:, day] += new
    return cases


TRUE = np.log([[0.4, 0.15]])
OBSERVED = np.random.default_rng(2).poisson(epidemic(TRUE)[0])


def log_posterior(rates):
    """Poisson counts, and a wide prior on the logarithms of the rates."""
    expected = epidemic(rates) + 0.1
    likelihood = np.sum(OBSERVED * np.log(expected) - expected, axis=1)
    return likelihood - 0.5 * np.sum((rates + 1.5) ** 2, axis=1)


# %% [markdown]
# This simulator takes many points at a time (`batched=True`). One that takes one point at a time, and
# long, runs in several processes: `natmix.HostTarget(f, 2, workers=8, timeout=60)`; see [expensive
# functions](../targets.md#expensive-functions).

# %%
target = natmix.HostTarget(log_posterior, dim=2, batched=True)
result = natmix.fit(target, init_mean=-1.5, init_scale=1.0, max_seconds=120)
print(result.summary())

# %%
figure = result.plot(labels=["log infection rate", "log recovery rate"]).figure

# %% [markdown]
# How many others does one case infect? Two rates are few enough for a grid, which gives the exact
# answer.

# %%
x = np.exp(np.asarray(result.sample(20_000)))
low, middle, high = np.quantile(x[:, 0] / x[:, 1], [0.05, 0.5, 0.95])
print(f"infections by one case: {middle:.2f}, 90% between {low:.2f} and {high:.2f}")
print(f"the data came from {0.4 / 0.15:.2f}")

infection, recovery = np.meshgrid(np.linspace(-2, 0, 250), np.linspace(-4, 0, 250), indexing="ij")
height = log_posterior(np.stack([infection.ravel(), recovery.ravel()], axis=1))
ratio = np.exp(infection - recovery).ravel()
order = np.argsort(ratio)
share = np.cumsum(np.exp(height - height.max())[order])
exact = ratio[order][np.searchsorted(share / share[-1], [0.05, 0.5, 0.95])]
print(f"on a grid: {exact[1]:.2f}, between {exact[0]:.2f} and {exact[2]:.2f}")

# %%
assert result.algorithm.codename.startswith("Z")
assert result.diagnosis.verdict in ("unsearched", "trust")
np.testing.assert_allclose([low, middle, high], exact, rtol=0.02)
