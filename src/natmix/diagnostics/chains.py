"""Short Markov chains that leave the target as it is, with steps as wide as the mixture is where they are.

A state is a point x and a component o. In turn o is drawn from q(o|x), and x moves by Hamiltonian Monte Carlo
(by a random walk without gradients) for the density p(x) q(o|x) and the metric of component o. The joint
density p(x) q(o|x) has p as its marginal, and every step leaves it invariant: whoever starts from p stays p.

All of it is one function, `_advanced`, from one evaluation of the target to the next point to evaluate at: a
target inside JAX is compiled with it into one program, others are called in between.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.array_types import Count, PRNGKey
from natmix.kernels.compilation import collector_paused, quick_jit
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget

LEAPS = 8
"""Leapfrog steps, and evaluations, of one step of a chain with gradients."""
_LONGEST, _SHORTEST = 1.2, 0.1
"""Of a leapfrog step, over D^(1/4), in the component's standard deviations; drawn anew for every step, evenly
on a log scale: short ones get on where the target is narrower than the component."""
_WALK = 2.4
"""Of a random walk's step, over D^(1/2), the longest; the shortest is an eighth."""


class Walked(NamedTuple):
    """Chains.

    Attributes:
        log_ratio: log p~ - log q after every step.
        accepted: share of steps.
        x: the last points.
        evaluations: of the target.
    """

    log_ratio: Float[np.ndarray, "T N"]
    accepted: float
    x: Float[np.ndarray, "N D"]
    evaluations: int


class _Place(NamedTuple):
    """Where the chains are: log p~, its gradient (None without gradients), and log q(x|o) q(o) there."""

    x: Float[Array, "N D"]
    log_p: Float[Array, " N"]
    slope: Float[Array, "N D"] | None
    joint: Float[Array, "N K"]


class _Flight(NamedTuple):
    """A step under way: the next point to evaluate at, and `_energy` where it began."""

    x: Float[Array, "N D"]
    momentum: Float[Array, "N D"]
    rows: Int[Array, " N"]
    step: Float[Array, "N 1"]
    energy: Float[Array, " N"]


class _State(NamedTuple):
    """Between two evaluations: one is at the start, of those after it every `_leaps`-th ends a step."""

    place: _Place
    flight: _Flight
    evaluated: Count
    log_ratio: Float[Array, "T N"]
    accepted: Float[Array, ""]


def walk(
    mixture: Mixture,
    target: AbstractTarget,
    x: Float[np.ndarray, "N D"],
    steps: int,
    key: PRNGKey,
    *,
    gradients: bool,
) -> Walked:
    """So many steps from each point, at which the density must be positive."""
    start: Any = np.asarray(x, mixture.dtype)
    times = 1 + steps * _leaps(gradients)
    if target.inside_jax:
        with collector_paused():
            state = _through(mixture, target, start, steps, gradients, key)
    else:
        state = _first(mixture, start, steps, gradients)
        for _ in range(times):
            found = target.evaluate(key, state.flight.x, len(x), gradients)
            state = _once(mixture, state, found.log_density, found.gradient, key)
    ratios, last = np.asarray(state.log_ratio, float), np.asarray(state.place.x, float)
    return Walked(ratios, float(state.accepted) / steps, last, times * len(x))


def _leaps(gradients: bool) -> int:
    return LEAPS if gradients else 1


@quick_jit()
def _through(
    mixture: Mixture,
    target: AbstractTarget,
    x: Float[Array, "N D"],
    steps: int,
    gradients: bool,
    key: PRNGKey,
) -> _State:
    key_target, key_walk = jax.random.split(key)

    def body(_: Count, state: _State) -> _State:
        found = target.evaluate(key_target, state.flight.x, x.shape[0], gradients)
        return _advanced(mixture, state, found.log_density, found.gradient, key_walk)

    times = 1 + steps * _leaps(gradients)
    return jax.lax.fori_loop(0, times, body, _begun(mixture, x, steps, gradients))


def _begun(mixture: Mixture, x: Float[Array, "N D"], steps: int, gradients: bool) -> _State:
    """A flight of no length, whose end is accepted if its density is positive."""
    N = x.shape[0]
    zero, none = jnp.zeros(N, x.dtype), jnp.zeros_like(x)
    place = _Place(x, zero, none if gradients else None, jnp.zeros((N, mixture.num_components), x.dtype))
    flight = _Flight(x, none, jnp.zeros(N, jnp.int32), zero[:, None], zero - jnp.inf)
    ratios = jnp.zeros((steps, N), x.dtype)
    return _State(place, flight, jnp.zeros((), jnp.int32), ratios, jnp.zeros((), x.dtype))


def _advanced(
    mixture: Mixture,
    state: _State,
    log_p: Float[Array, " N"],
    slope: Float[Array, "N D"] | None,
    key: PRNGKey,
) -> _State:
    """The target is known where the flights are: fly on, or end the step and begin another."""
    flight = state.flight
    joint = mixture.components.log_prob(flight.x) + mixture.log_weights
    here = _Place(flight.x, log_p, slope, joint)
    if slope is None:
        return _turned(mixture, state, here, flight.momentum, key)
    kick = 0.5 * flight.step * _force(mixture, here, flight.rows)
    momentum = flight.momentum + kick

    def on() -> _State:
        moved = _moved(mixture, flight, here, momentum + kick)
        return state._replace(flight=moved, evaluated=state.evaluated + 1)

    ends = state.evaluated % _leaps(True) == 0
    return jax.lax.cond(ends, lambda: _turned(mixture, state, here, momentum, key), on)


def _turned(
    mixture: Mixture, state: _State, here: _Place, momentum: Float[Array, "N D"], key: PRNGKey
) -> _State:
    """Take the step or stay, and begin another one."""
    N, D = here.x.shape
    dtype, gradients = here.x.dtype, here.slope is not None
    # One call for all random numbers: each is a long program to compile.
    u = jax.random.uniform(
        jax.random.fold_in(key, state.evaluated), (N, D + 3), dtype, minval=jnp.finfo(dtype).tiny
    )
    log_odds = _energy(here, state.flight.rows, momentum) - state.flight.energy
    taken = jnp.log(u[:, 0]) < log_odds
    taken = taken & jnp.isfinite(here.log_p)

    def kept(new: Array, old: Array) -> Array:
        return jnp.where(taken.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    place: _Place = jax.tree.map(kept, here, state.place)
    ratio = place.log_p - jax.scipy.special.logsumexp(place.joint, axis=1)
    row = jnp.maximum(state.evaluated // _leaps(gradients) - 1, 0)
    accepted = state.accepted + jnp.where(state.evaluated > 0, jnp.mean(taken, dtype=dtype), 0)
    edges = jnp.cumsum(jax.nn.softmax(place.joint, axis=1), axis=1)
    rows = jnp.sum(u[:, 1:2] * edges[:, -1:] > edges, axis=1, dtype=jnp.int32)
    short, noise = u[:, 2:3], jax.scipy.special.ndtri(u[:, 3:])
    if gradients:
        step = _LONGEST / D**0.25 * (_SHORTEST / _LONGEST) ** short
        momentum = noise + 0.5 * step * _force(mixture, place, rows)
        energy = _energy(place, rows, noise)
    else:
        step = _WALK / D**0.5 * 0.125**short
        momentum = noise
        energy = _energy(place, rows, jnp.zeros_like(noise))
    flight = _moved(mixture, _Flight(place.x, momentum, rows, step, energy), place, momentum)
    if not gradients:
        flight = flight._replace(momentum=jnp.zeros_like(noise))
    return _State(place, flight, state.evaluated + 1, state.log_ratio.at[row].set(ratio), accepted)


def _moved(mixture: Mixture, flight: _Flight, place: _Place, momentum: Float[Array, "N D"]) -> _Flight:
    x = place.x + mixture.components.push_rows(flight.step * momentum, flight.rows)
    return flight._replace(x=x, momentum=momentum)


def _energy(place: _Place, rows: Int[Array, " N"], momentum: Float[Array, "N D"]) -> Float[Array, " N"]:
    """Log p(x) + log q(o|x) - |momentum|^2 / 2."""
    own = jnp.take_along_axis(place.joint, rows[:, None], axis=1)[:, 0]
    log_share = own - jax.scipy.special.logsumexp(place.joint, axis=1)
    return place.log_p + log_share - 0.5 * jnp.sum(momentum**2, axis=1)


def _force(mixture: Mixture, place: _Place, rows: Int[Array, " N"]) -> Float[Array, "N D"]:
    """L^T grad(log p(x) + log q(o|x)), zero where it is not finite."""
    assert place.slope is not None
    own = jax.nn.one_hot(rows, place.joint.shape[1], dtype=place.x.dtype)
    share = own - jax.nn.softmax(place.joint, axis=1)
    gradient = place.slope + mixture.components.mixture_score(share, place.x)
    force = mixture.components.pull_rows(gradient, rows)
    return jnp.where(jnp.isfinite(force), force, 0)


# For targets outside JAX, which are evaluated between two of these.
_first, _once = quick_jit()(_begun), quick_jit()(_advanced)
