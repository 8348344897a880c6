# %% [markdown]
# # A NumPyro model with two modes
#
# Two sensors see only the square of a position. A third sensor sees the position itself, with a large
# error. The posterior has a mode on either side of zero, of different weight. One Gaussian cannot
# describe it.

# %%
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import integrate, stats

import natmix


def model(squares=None, rough=None):
    """A position, seen by its square and roughly."""
    position = numpyro.sample("position", dist.Normal(0, 3))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    numpyro.deterministic("square", position**2)
    numpyro.sample("squares", dist.Normal(position**2, noise).expand([2]), obs=squares)
    numpyro.sample("rough", dist.Normal(position, 8.0), obs=rough)


data = {"squares": jnp.array([3.6, 4.5]), "rough": jnp.array(3.0)}

# %% [markdown]
# One line fits the model to its data. The fit starts with L-BFGS runs from several points, so it
# finds both modes.

# %%
result = natmix.fit(model, model_kwargs=data)
print(result.summary())

# %%
figure = result.plot().figure

# %% [markdown]
# The result has draws by name, probabilities of events, and predictions.

# %%
draws = result.sample(20_000)
ahead = result.predict(2000)
print(f"P(position > 0) = {result.prob({'position': (0, None)})}")
print(f"the next square: {ahead['squares'].mean():.2f} ± {ahead['squares'].std():.2f}")

# %% [markdown]
# The model has only two variables, so quadrature gives the exact answer.

# %%
grid = np.linspace(-4, 4, 801)
noises = np.linspace(0.02, 6, 600)
P, S = np.meshgrid(grid, noises, indexing="ij")
joint = stats.norm(0, 3).logpdf(P) + stats.halfnorm(0, 1).logpdf(S) + stats.norm(P, 8).logpdf(3.0)
joint = joint + sum(stats.norm(P**2, S).logpdf(y) for y in np.asarray(data["squares"]))
density = integrate.trapezoid(np.exp(joint), noises, axis=1)
log_evidence = np.log(integrate.trapezoid(density, grid))
right = integrate.trapezoid(np.where(grid > 0, density, 0), grid) / np.exp(log_evidence)

print(f"log evidence: {result.diagnosis.log_evidence} here, {log_evidence:.4f} by quadrature")
print(f"P(position > 0): {np.mean(draws['position'] > 0):.3f} here, {right:.3f} by quadrature")

# %%
assert result.diagnosis.trusted
assert abs(result.diagnosis.log_evidence.value - log_evidence) < 0.02
assert abs(np.mean(draws["position"] > 0) - right) < 0.02
