# %% [markdown]
# # A Stan program with two modes
#
# The period of a star that moves to and fro, from six velocities. Needs the extra `stan` and
# a C++ compiler. Compiling takes about a minute the first time.

# %%
import importlib.util

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import natmix
from natmix.text.extras import install

if not any(importlib.util.find_spec(name) for name in ("bridgestan", "httpstan")):
    print(f"Skipped: this tutorial needs Stan: {install('stan')}.")
    raise SystemExit

PROGRAM = """
data {
  int N;
  vector[N] day;
  vector[N] velocity;
  real error;
  real next_day;
}
parameters {
  real<lower=3, upper=9> period;
  vector[2] wave;
}
transformed parameters {
  real amplitude = sqrt(dot_self(wave));
}
model {
  vector[N] angle = 2 * pi() * day / period;
  period ~ uniform(3, 9);
  wave ~ normal(0, 5);
  velocity ~ normal(wave[1] * sin(angle) + wave[2] * cos(angle), error);
}
generated quantities {
  real next_angle = 2 * pi() * next_day / period;
  real next_velocity = normal_rng(wave[1] * sin(next_angle) + wave[2] * cos(next_angle), error);
}
"""

DAY = np.array([0.6, 2.6, 3.0, 10.0, 12.0, 18.6])
VELOCITY = np.array([6.1, -3.2, -3.0, -2.7, 5.4, -4.7])
ERROR = 2.0

# %% [markdown]
# Without `period ~ uniform(3, 9)` the samples would be the same, but Stan's density, and so the
# evidence, six times as large: bounds alone are no prior that integrates to one.
#
# natmix takes the program and its data, and uses Stan's gradients. The fit starts with L-BFGS runs
# from several points.

# %%
data = {"N": 6, "day": DAY, "velocity": VELOCITY, "error": ERROR, "next_day": 24.0}
model = natmix.models.StanModel(PROGRAM, data, observed=["velocity"])
result = natmix.fit(model)
print(result.summary())

# %% [markdown]
# Parameters, transformed parameters and generated quantities have their names in Stan.

# %%
draws = result.sample(20_000)
print(", ".join(f"{name} {list(value.shape)}" for name, value in draws.items()))

# %% [markdown]
# The exact answer: the wave is integrated out by hand, the period by quadrature.

# %%
periods = np.linspace(3, 9, 6001)
angles = 2 * np.pi * DAY / periods[:, None]
waves = np.stack([np.sin(angles), np.cos(angles)], axis=2)
covariances = 25 * waves @ waves.swapaxes(1, 2) + ERROR**2 * np.eye(6)
heights = np.array([multivariate_normal.logpdf(VELOCITY, cov=c) for c in covariances])
log_evidence = logsumexp(heights) - np.log(len(periods))
short = np.exp(logsumexp(heights[periods < 4.6]) - logsumexp(heights))

found = np.mean(draws["period"] < 4.6)
print(f"log evidence: {result.diagnosis.log_evidence} here, {log_evidence:.4f} by quadrature")
print(f"P(period < 4.6 days): {found:.3f} here, {short:.3f} by quadrature")
print(f"velocity on day 24: {draws['next_velocity'].mean():.1f} ± {draws['next_velocity'].std():.1f}")

# %%
assert result.diagnosis.verdict in ("trust", "unsearched")
assert abs(result.diagnosis.log_evidence.value - log_evidence) < 0.03
assert abs(found - short) < 0.03
