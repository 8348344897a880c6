"""A Gaussian mean with a Gaussian prior, whose posterior is known."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

OBSERVATIONS = 3


def simulate(key):
    a, b = jax.random.split(key)
    theta = jax.random.normal(a, (2,))
    return {"theta": theta}, {"y": theta + jax.random.normal(b, (OBSERVATIONS, 2))}


def log_density(parameters, data):
    theta = parameters["theta"]
    return -0.5 * jnp.sum(theta**2) - 0.5 * jnp.sum((data["y"] - theta) ** 2)


@dataclasses.dataclass
class Known:
    """The exact posterior, shifted and scaled."""

    y: np.ndarray
    shift: float = 0.0
    scale: float = 1.0
    interrupted: bool = False

    def sample(self, n, *, seed):
        precision = 1 + OBSERVATIONS
        mean = self.y.sum(axis=0) / precision
        noise = np.random.default_rng(seed).standard_normal((n, 2))
        return {"theta": mean + (self.shift + self.scale * noise) / np.sqrt(precision)}
