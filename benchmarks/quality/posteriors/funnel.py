"""Neal's funnel: v ~ N(0, 3^2), x_i ~ N(0, exp(v)), i = 1, ..., 9. Normalised: log Z = 0."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from posteriors.problem import Draws, Problem, Truth

WIDTH, OTHERS = 3.0, 9


def funnel() -> None:
    """Ten dimensions."""
    v = numpyro.sample("v", dist.Normal(0, WIDTH))
    numpyro.sample("x", dist.Normal(0, jnp.exp(v / 2)).expand([OTHERS]).to_event(1))


def truth(problem: Problem) -> Truth:
    """Var x_i = E exp(v) = exp(3^2 / 2)."""
    sd = np.concatenate([[WIDTH], np.full(OTHERS, np.exp(WIDTH**2 / 4))])
    return Truth(np.zeros(1 + OTHERS), sd, 0.0, 0.0, 0.0, "closed form")


def exact(rng: np.random.Generator, n: int) -> Draws:
    """Independent samples of v and x."""
    v = WIDTH * rng.standard_normal(n)
    return np.column_stack([v, np.exp(v / 2)[:, None] * rng.standard_normal((n, OTHERS))])


FUNNEL = Problem("funnel", "Neal's funnel, 10 dimensions", funnel, {}, ("v", "x"), truth, exact=exact)
