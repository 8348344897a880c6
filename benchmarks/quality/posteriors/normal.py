"""NumPyro's AutoMultivariateNormal: one Gaussian by stochastic gradients."""

import time

import jax
import numpy as np
from jaxtyping import Array, Float
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal
from numpyro.optim import Adam

from posteriors.evaluate import log_densities
from posteriors.outcome import Outcome, weighed
from posteriors.problem import Problem
from posteriors.symmetry import Points

STEPS = 30_000
"""At most; more evaluations go into more samples per step."""
USUAL = 1e-2
FASTEST, SLOWEST = USUAL, 1e-4
"""Adam's stepsize falls exponentially from one to the other."""


def run(problem: Problem, seed: int, budget: int) -> Outcome:
    """Half of the evaluations for the fit, half for importance sampling."""
    started = time.perf_counter()
    half = budget // 2
    particles = -(-half // STEPS)
    steps = -(-half // particles)
    guide = AutoMultivariateNormal(problem.model)
    optimiser = Adam(lambda step: FASTEST * (SLOWEST / FASTEST) ** (step / steps))
    loss = Trace_ELBO(num_particles=particles, vectorize_particles=True)
    svi = SVI(problem.model, guide, optimiser, loss)
    found = svi.run(jax.random.key(seed), steps, progress_bar=False, **problem.kwargs)
    gaussian = guide.get_posterior(found.params)
    own = gaussian.sample(jax.random.key(seed + 1000), (half,))
    x = _by_name(guide, own)
    log_w = log_densities(problem.compiled(), x) - np.asarray(gaussian.log_prob(own), float)
    elbo = float(log_w.mean())
    seconds = time.perf_counter() - started
    name = "AutoMultivariateNormal" + (f", stepsize {FASTEST:g}" if FASTEST != USUAL else "")
    return weighed(name, steps * particles + half, seconds, x, log_w, elbo)


def _by_name(guide: AutoMultivariateNormal, x: Float[Array, "N D"]) -> Points:
    """The guide's coordinates, in the order of the model's statements, as natmix has them: by name."""
    parts = jax.vmap(guide._unpack_latent)(x)
    return np.concatenate([np.asarray(parts[n], float).reshape(len(x), -1) for n in sorted(parts)], axis=1)
