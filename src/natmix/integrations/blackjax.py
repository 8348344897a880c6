"""natmix as a variational algorithm of BlackJAX: init, step, sample."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from natmix.array_types import KeyLike, PyTree, Scalar
from natmix.checks import as_int
from natmix.gaussians import AbstractGaussians
from natmix.gaussians.families import family_named
from natmix.gmmvi import GMMVI
from natmix.initialization.default_algorithm import GRADIENT_DEFAULT, suited_overrides
from natmix.mixture import Mixture
from natmix.modules.state import Info, State
from natmix.random_keys import as_key
from natmix.targets import JaxTarget
from natmix.text.extras import needs

__all__ = ["GMMVIInfo", "GMMVIState", "gmmvi"]


class GMMVIState(NamedTuple):
    """What `step` carries on.

    Attributes:
        position: the initial position, whose structure samples have.
        state: natmix's state.
    """

    position: PyTree
    state: State

    @property
    def mixture(self) -> Mixture:
        """The approximation, of the position as one vector (`jax.flatten_util.ravel_pytree`)."""
        return self.state.mixture


class GMMVIInfo(NamedTuple):
    """What happened in a step.

    Attributes:
        elbo: of the approximation, estimated with the samples of this step.
        iteration: everything else that natmix reports of it.
    """

    elbo: Scalar
    iteration: Info


def gmmvi(
    logdensity_fn: Callable[[PyTree], Scalar],
    algorithm: str = GRADIENT_DEFAULT,
    *,
    max_components: int = 16,
    init_components: int = 1,
    init_scale: float = 1.0,
    covariance: str = "full",
    **overrides: Any,
) -> Any:
    """A Gaussian mixture by natural gradients as a `blackjax.base.VIAlgorithm`.

    The three functions are pure, for `jax.jit`, `jax.lax.scan` and `jax.vmap`. Nothing decides when to stop,
    and nothing verifies the result: `natmix.fit(logdensity_fn, position=...)` does both.

    Args:
        logdensity_fn: the log density of a position, a pytree of arrays.
        algorithm: a codename.
        max_components: components for which there is room; arrays have a fixed size here. An algorithm that
            adds components stops adding there.
        init_components: how many to start with, around the initial position.
        init_scale: standard deviation of the initial Gaussian around the position.
        covariance: the covariance family, "full" or "diagonal".
        **overrides: hyperparameters by module, as in `natmix.fit`.

    Returns:
        ``init(position)``, ``step(rng_key, state)`` and ``sample(rng_key, state, num_samples)``.
    """
    with needs("BlackJAX", "blackjax", "natmix.integrations.blackjax"):
        from blackjax.base import VIAlgorithm

    room = as_int(max_components, "max_components")
    first = as_int(init_components, "init_components")
    if first > room:
        raise ValueError(f"{first} init_components do not fit into max_components={room}.")
    if not (init_scale > 0 and math.isfinite(init_scale)):
        raise ValueError(f"init_scale must be a positive number, got {init_scale!r}.")
    family = family_named(covariance)

    def parts(position: PyTree) -> tuple[GMMVI, JaxTarget]:
        """The algorithm and the target for positions of this structure."""
        flat, unravel = ravel_pytree(position)
        target = JaxTarget(lambda x: logdensity_fn(unravel(x)), int(flat.size))
        suited = suited_overrides(algorithm, target, family, overrides)
        with jax.ensure_compile_time_eval():  # its hyperparameters are no arguments of the program
            return GMMVI.from_codename(algorithm, **suited), target

    def init(position: PyTree) -> GMMVIState:
        position = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), position)
        centre, _ = ravel_pytree(position)
        chosen, _ = parts(position)
        prior, mixture = _initial(centre, init_scale, first, family)
        slots = min(room, chosen.component_adaptation.most_components(first))
        return GMMVIState(position, chosen.init(_NO_KEY, mixture, prior, slots))

    def step(rng_key: KeyLike, state: GMMVIState) -> tuple[GMMVIState, GMMVIInfo]:
        chosen, target = parts(state.position)
        keyed = dataclasses.replace(state.state, key=as_key(rng_key))
        stepped, info = chosen.step(keyed, target)
        # The key comes anew with each step; the state keeps one type whatever kind of key that is.
        stepped = dataclasses.replace(stepped, key=state.state.key)
        return GMMVIState(state.position, stepped), GMMVIInfo(info.elbo, info)

    def sample(rng_key: KeyLike, state: GMMVIState, num_samples: int = 1) -> PyTree:
        _, unravel = ravel_pytree(state.position)
        return jax.vmap(unravel)(state.mixture.sample(num_samples, key=rng_key))

    return VIAlgorithm(init, step, sample)


_NO_KEY = 0
"""The seed of a state, which is not used: every step brings its own key."""


def _initial(
    centre: Float[Array, " D"], scale: float, components: int, family: type[AbstractGaussians]
) -> tuple[Mixture, Mixture]:
    """The initial region and the initial mixture; all means but the first are drawn from the region."""
    region = family.from_std(centre[None], jnp.full((1, centre.size), scale, centre.dtype))
    prior = Mixture(jnp.zeros(1, centre.dtype), region)
    noise = jax.random.normal(jax.random.key(_NO_KEY), (components, centre.size), centre.dtype)
    means = centre + scale * noise.at[0].set(0)
    same = region.take(jnp.zeros(components, jnp.int32))
    log_weights = jnp.full(components, -math.log(components), centre.dtype)
    return prior, Mixture(log_weights, dataclasses.replace(same, mean=means))
