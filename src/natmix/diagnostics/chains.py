"""Short Markov chains that leave the target invariant, with the local covariance of the mixture as metric.

A state is a point x and a component o. In turn o is drawn from q(o|x), and x moves by Hamiltonian Monte Carlo
(by a random walk without gradients) for the density p(x) q(o|x) in the metric of component o. The joint
density p(x) q(o|x) has p as its marginal, and every step leaves it invariant: chains that start from p stay
distributed by p.

All of it is one function, `_advance`, from one evaluation of the target to the next point to evaluate at: a
target inside JAX is compiled with it into one program, others are called in between.
"""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.array_types import Count, PRNGKey
from natmix.kernels.compilation import collector_paused, quick_jit
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget

LEAPFROG_STEPS = 8
"""Per step of a chain with gradients, one evaluation each."""
_MAX_STEP, _MIN_STEP = 1.2, 0.1
"""Leapfrog step sizes, over D^(1/4), in the component's standard deviations; drawn for every step, evenly on
a log scale: small ones are accepted where the target is narrower than the component."""
_BLOCK = 32
"""Evaluations of every chain between two looks at the clock."""
_WALK_STEP = 2.4
"""The largest step size of a random walk, over D^(1/2); the smallest is an eighth of it."""


class ChainRecord(NamedTuple):
    """What several chains recorded.

    Attributes:
        log_ratio: log p~ - log q after every step.
        acceptance_rate: the share of steps accepted.
        x: the last points.
        evaluations: of the target.
    """

    log_ratio: Float[np.ndarray, "T N"]
    acceptance_rate: float
    x: Float[np.ndarray, "N D"]
    evaluations: int


class _Position(NamedTuple):
    """Where the chains are: log p~, its gradient (None without gradients), and log q(x|o) q(o) there."""

    x: Float[Array, "N D"]
    log_p: Float[Array, " N"]
    gradient: Float[Array, "N D"] | None
    joint: Float[Array, "N K"]


class _Proposal(NamedTuple):
    """A trajectory in progress: the next point to evaluate at, and `_log_joint` where it started."""

    x: Float[Array, "N D"]
    momentum: Float[Array, "N D"]
    component: Int[Array, " N"]
    step: Float[Array, "N 1"]
    log_joint: Float[Array, " N"]


class _State(NamedTuple):
    """Between two evaluations: the first is at the start, then every `_leapfrog_steps`-th ends a step."""

    position: _Position
    proposal: _Proposal
    evaluated: Count
    log_ratio: Float[Array, "T N"]
    accepted: Float[Array, ""]


class ChainsLateError(Exception):
    """The time for the chains is spent after so many evaluations of the target."""

    def __init__(self, evaluations: int) -> None:
        super().__init__("The time limit was reached.")
        self.evaluations = evaluations


def run_chains(
    mixture: Mixture,
    target: AbstractTarget,
    x: Float[np.ndarray, "N D"],
    steps: int,
    key: PRNGKey,
    *,
    gradients: bool,
    max_seconds: float = np.inf,
) -> ChainRecord:
    """So many steps from each point; the target's density must be positive there.

    Raises:
        ChainsLateError: they take longer than ``max_seconds``; looked at after every `_BLOCK` evaluations.
    """
    start: Any = np.asarray(x, mixture.dtype)
    times = 1 + steps * _leapfrog_steps(gradients)
    deadline = time.monotonic() + max_seconds
    state = _compiled_initial_state(mixture, start, steps, gradients)
    block = (times if np.isinf(max_seconds) else _BLOCK) if target.inside_jax else 1
    for done in range(0, times, block):
        if time.monotonic() > deadline:
            raise ChainsLateError(done * len(x))
        if target.inside_jax:
            with collector_paused():
                number = jnp.asarray(min(block, times - done))
                state = jax.block_until_ready(_some_steps(mixture, target, state, number, gradients, key))
        else:
            found = target.evaluate(key, state.proposal.x, len(x), gradients)
            state = _compiled_advance(mixture, state, found.log_density, found.gradient, key)
    ratios, last = np.asarray(state.log_ratio, float), np.asarray(state.position.x, float)
    return ChainRecord(ratios, float(state.accepted) / steps, last, times * len(x))


def _leapfrog_steps(gradients: bool) -> int:
    return LEAPFROG_STEPS if gradients else 1


@quick_jit()
def _some_steps(
    mixture: Mixture, target: AbstractTarget, state: _State, number: Count, gradients: bool, key: PRNGKey
) -> _State:
    """So many evaluations of every chain."""
    key_target, key_walk = jax.random.split(key)

    def body(_: Count, state: _State) -> _State:
        x = state.proposal.x
        found = target.evaluate(key_target, x, x.shape[0], gradients)
        return _advance(mixture, state, found.log_density, found.gradient, key_walk)

    return jax.lax.fori_loop(0, number, body, state)


def _initial_state(mixture: Mixture, x: Float[Array, "N D"], steps: int, gradients: bool) -> _State:
    """A proposal of the starting point itself, accepted if its density is positive."""
    N = x.shape[0]
    zero, none = jnp.zeros(N, x.dtype), jnp.zeros_like(x)
    position = _Position(
        x, zero, none if gradients else None, jnp.zeros((N, mixture.num_components), x.dtype)
    )
    proposal = _Proposal(x, none, jnp.zeros(N, jnp.int32), zero[:, None], zero - jnp.inf)
    ratios = jnp.zeros((steps, N), x.dtype)
    return _State(position, proposal, jnp.zeros((), jnp.int32), ratios, jnp.zeros((), x.dtype))


def _advance(
    mixture: Mixture,
    state: _State,
    log_p: Float[Array, " N"],
    gradient: Float[Array, "N D"] | None,
    key: PRNGKey,
) -> _State:
    """The target is known at the proposals: take another leapfrog step, or accept and propose anew."""
    proposal = state.proposal
    joint = mixture.components.log_prob(proposal.x) + mixture.log_weights
    here = _Position(proposal.x, log_p, gradient, joint)
    if gradient is None:
        return _accept_and_propose(mixture, state, here, proposal.momentum, key)
    kick = 0.5 * proposal.step * _force(mixture, here, proposal.component)
    momentum = proposal.momentum + kick

    def leapfrog() -> _State:
        moved = _moved(mixture, proposal, here, momentum + kick)
        return state._replace(proposal=moved, evaluated=state.evaluated + 1)

    ends = state.evaluated % _leapfrog_steps(True) == 0
    return jax.lax.cond(ends, lambda: _accept_and_propose(mixture, state, here, momentum, key), leapfrog)


def _accept_and_propose(
    mixture: Mixture, state: _State, here: _Position, momentum: Float[Array, "N D"], key: PRNGKey
) -> _State:
    """Accept or reject the proposal, and draw the next one."""
    N, D = here.x.shape
    dtype, gradients = here.x.dtype, here.gradient is not None
    # One call for all random numbers: each call takes long to compile.
    u = jax.random.uniform(
        jax.random.fold_in(key, state.evaluated), (N, D + 3), dtype, minval=jnp.finfo(dtype).tiny
    )
    log_acceptance = _log_joint(here, state.proposal.component, momentum) - state.proposal.log_joint
    accept = jnp.log(u[:, 0]) < log_acceptance
    accept = accept & jnp.isfinite(here.log_p)

    def kept(new: Array, old: Array) -> Array:
        return jnp.where(accept.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    position: _Position = jax.tree.map(kept, here, state.position)
    ratio = position.log_p - jax.scipy.special.logsumexp(position.joint, axis=1)
    row = jnp.maximum(state.evaluated // _leapfrog_steps(gradients) - 1, 0)
    accepted = state.accepted + jnp.where(state.evaluated > 0, jnp.mean(accept, dtype=dtype), 0)
    edges = jnp.cumsum(jax.nn.softmax(position.joint, axis=1), axis=1)
    component = jnp.sum(u[:, 1:2] * edges[:, -1:] > edges, axis=1, dtype=jnp.int32)
    size, noise = u[:, 2:3], jax.scipy.special.ndtri(u[:, 3:])
    if gradients:
        step = _MAX_STEP / D**0.25 * (_MIN_STEP / _MAX_STEP) ** size
        momentum = noise + 0.5 * step * _force(mixture, position, component)
        log_joint = _log_joint(position, component, noise)
    else:
        step = _WALK_STEP / D**0.5 * 0.125**size
        momentum = noise
        log_joint = _log_joint(position, component, jnp.zeros_like(noise))
    start = _Proposal(position.x, momentum, component, step, log_joint)
    proposal = _moved(mixture, start, position, momentum)
    if not gradients:
        proposal = proposal._replace(momentum=jnp.zeros_like(noise))
    return _State(position, proposal, state.evaluated + 1, state.log_ratio.at[row].set(ratio), accepted)


def _moved(
    mixture: Mixture, proposal: _Proposal, position: _Position, momentum: Float[Array, "N D"]
) -> _Proposal:
    x = position.x + mixture.components.push_rows(proposal.step * momentum, proposal.component)
    return proposal._replace(x=x, momentum=momentum)


def _log_joint(
    position: _Position, component: Int[Array, " N"], momentum: Float[Array, "N D"]
) -> Float[Array, " N"]:
    """Log p(x) + log q(o|x) - |momentum|^2 / 2."""
    own = jnp.take_along_axis(position.joint, component[:, None], axis=1)[:, 0]
    log_responsibility = own - jax.scipy.special.logsumexp(position.joint, axis=1)
    return position.log_p + log_responsibility - 0.5 * jnp.sum(momentum**2, axis=1)


def _force(mixture: Mixture, position: _Position, component: Int[Array, " N"]) -> Float[Array, "N D"]:
    """L^T grad(log p(x) + log q(o|x)), zero where it is not finite."""
    assert position.gradient is not None
    own = jax.nn.one_hot(component, position.joint.shape[1], dtype=position.x.dtype)
    difference = own - jax.nn.softmax(position.joint, axis=1)
    gradient = position.gradient + mixture.components.mixture_score(difference, position.x)
    force = mixture.components.pull_rows(gradient, component)
    return jnp.where(jnp.isfinite(force), force, 0)


# For targets outside JAX, which are evaluated between two calls.
_compiled_initial_state, _compiled_advance = quick_jit()(_initial_state), quick_jit()(_advance)
