"""A long NUTS run on a log-concave target, in whitened coordinates."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import Scalar

LogDensity = Callable[[Float[Array, " D"]], Scalar]

_NEWTON_STEPS = 100


class NutsChains(NamedTuple):
    """Draws after the warm-up, and how many leapfrog trajectories diverged."""

    draws: Float[np.ndarray, "C T D"]
    divergences: int
    mean_accept: float


def run_nuts(
    log_density: LogDensity, dim: int, *, chains: int, warmup: int, draws: int, seed: int
) -> NutsChains:
    """NumPyro's NUTS with a dense mass matrix, in the current floating-point type.

    The target must be log-concave: it has one mode, found by Newton's method, and the chains move in
    z = L^-1 (x - mode), L L^T the inverse of minus the Hessian there. They start from N(0, 2^2 I) in z, wider
    than the target, so that R-hat means something.
    """
    from numpyro.infer import MCMC, NUTS

    mode = find_mode(log_density, jnp.zeros(dim))
    precision = -jax.hessian(log_density)(mode)
    L = jnp.linalg.inv(jnp.linalg.cholesky(precision)).T

    def potential(z: Float[Array, " D"]) -> Scalar:
        return -log_density(mode + L @ z)

    key_start, key_run = jax.random.split(jax.random.key(seed))
    start = 2 * jax.random.normal(key_start, (chains, dim))
    sampler = MCMC(
        NUTS(potential_fn=potential, dense_mass=True, target_accept_prob=0.85),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    sampler.run(key_run, init_params=start, extra_fields=("diverging", "accept_prob"))
    z = sampler.get_samples(group_by_chain=True)
    extra = sampler.get_extra_fields()
    x = mode + jnp.einsum("ij,ctj->cti", L, z, precision=jax.lax.Precision.HIGHEST)
    return NutsChains(np.asarray(x), int(extra["diverging"].sum()), float(extra["accept_prob"].mean()))


def find_mode(log_density: LogDensity, start: Float[Array, " D"]) -> Float[Array, " D"]:
    """The maximum of a log-concave function: Newton steps, halved until they rise."""
    value_and_grad = jax.value_and_grad(log_density)
    halves = 0.5 ** jnp.arange(30)

    def step(_: int, x: Float[Array, " D"]) -> Float[Array, " D"]:
        value, gradient = value_and_grad(x)
        direction = jnp.linalg.solve(-jax.hessian(log_density)(x), gradient)
        tries = x + halves[:, None] * direction
        rises = jax.vmap(log_density)(tries) > value
        return jnp.where(jnp.any(rises), tries[jnp.argmax(rises)], x)

    return jax.jit(lambda x: jax.lax.fori_loop(0, _NEWTON_STEPS, step, x))(start)
