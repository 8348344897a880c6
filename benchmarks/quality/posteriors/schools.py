"""Eight schools, centred and not. What is left after Gaussian integrals is one over log tau.

mu ~ N(0, 5^2), tau ~ HalfCauchy(5), theta_j ~ N(mu, tau^2), y_j ~ N(theta_j, sigma_j^2). Given tau, with
V_j = sigma_j^2 + tau^2: mu ~ N(m, 1/P), P = 1/25 + sum 1/V_j, m = sum (y_j / V_j) / P, and theta_j has mean
s_j y_j + (1 - s_j) m and variance s_j sigma_j^2 + (1 - s_j)^2 / P, s_j = tau^2 / V_j.
"""

from typing import NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Float

from posteriors.problem import Draws, Problem, Truth

Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SIGMA = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
PRIOR_SD, PRIOR_TAU = 5.0, 5.0
_LOG_TAU = np.linspace(-25.0, 15.0, 20_001)


def centred(y: np.ndarray, sigma: np.ndarray) -> None:
    """The schools' effects themselves."""
    mu = numpyro.sample("mu", dist.Normal(0, PRIOR_SD))
    tau = numpyro.sample("tau", dist.HalfCauchy(PRIOR_TAU))
    theta = numpyro.sample("theta", dist.Normal(mu, tau).expand([len(Y)]).to_event(1))
    numpyro.sample("y", dist.Normal(theta, sigma).to_event(1), obs=y)


def non_centred(y: np.ndarray, sigma: np.ndarray) -> None:
    """Their distances from the mean, in units of tau."""
    mu = numpyro.sample("mu", dist.Normal(0, PRIOR_SD))
    tau = numpyro.sample("tau", dist.HalfCauchy(PRIOR_TAU))
    base = numpyro.sample("base", dist.Normal(0, 1).expand([len(Y)]).to_event(1))
    theta = numpyro.deterministic("theta", mu + tau * base)
    numpyro.sample("y", dist.Normal(theta, sigma).to_event(1), obs=y)


class Given(NamedTuple):
    """Weights of the values of tau, and the moments of the rest given each."""

    weights: Float[np.ndarray, " T"]
    log_evidence: float
    mu_mean: Float[np.ndarray, " T"]
    mu_variance: Float[np.ndarray, " T"]
    pull: Float[np.ndarray, "T 8"]


def given_tau(log_tau: Float[np.ndarray, " T"]) -> Given:
    """On an even grid of log tau, by the trapezoidal rule, which is exact here to many digits."""
    tau = np.exp(log_tau)
    V = SIGMA**2 + tau[:, None] ** 2
    precision = 1 / PRIOR_SD**2 + np.sum(1 / V, axis=1)
    mean = np.sum(Y / V, axis=1) / precision
    log_y = -0.5 * np.sum(np.log(2 * np.pi * V) + Y**2 / V, axis=1)
    log_y += 0.5 * (mean**2 * precision - np.log(PRIOR_SD**2 * precision))
    log_prior = np.log(2 / (np.pi * PRIOR_TAU)) - np.log1p((tau / PRIOR_TAU) ** 2) + log_tau
    log_joint = log_y + log_prior
    top = log_joint.max()
    terms = np.exp(log_joint - top)
    log_z = top + np.log(np.trapezoid(terms, log_tau))
    return Given(terms / terms.sum(), float(log_z), mean, 1 / precision, tau[:, None] ** 2 / V)


def truth(problem: Problem) -> Truth:
    """Of mu, tau and theta."""
    g, tau = given_tau(_LOG_TAU), np.exp(_LOG_TAU)
    means = np.column_stack([g.mu_mean, tau, g.pull * Y + (1 - g.pull) * g.mu_mean[:, None]])
    inner = g.pull * SIGMA**2 + (1 - g.pull) ** 2 * g.mu_variance[:, None]
    variances = np.column_stack([g.mu_variance, np.zeros_like(tau), inner])
    mean = g.weights @ means
    sd = np.sqrt(g.weights @ (variances + (means - mean) ** 2))
    return Truth(mean, sd, 0.0, g.log_evidence, 0.0, "Gaussian integrals and quadrature over log tau")


def exact(rng: np.random.Generator, n: int) -> Draws:
    """Independent samples of mu, tau and theta."""
    g = given_tau(_LOG_TAU)
    i = rng.choice(len(_LOG_TAU), n, p=g.weights)
    tau = np.exp(_LOG_TAU[i])
    mu = g.mu_mean[i] + np.sqrt(g.mu_variance[i]) * rng.standard_normal(n)
    pull = g.pull[i]
    theta = pull * Y + (1 - pull) * mu[:, None] + np.sqrt(pull) * SIGMA * rng.standard_normal(pull.shape)
    return np.column_stack([mu, tau, theta])


_DATA = {"y": Y, "sigma": SIGMA}
_QUANTITIES = ("mu", "tau", "theta")
CENTRED = Problem(
    "schools_centred", "Eight schools, centred", centred, _DATA, _QUANTITIES, truth, exact=exact
)
NON_CENTRED = Problem(
    "schools_non_centred", "Eight schools, non-centred", non_centred, _DATA, _QUANTITIES, truth, exact=exact
)
