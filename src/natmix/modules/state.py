"""What a run carries from one iteration to the next, and what one iteration reports."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from natmix.array_types import Count, Flag, PRNGKey, PyTree, Scalar
from natmix.kernels.sharding import split
from natmix.mixture import Mixture
from natmix.modules.component_stepsizes.base import Rewards
from natmix.modules.per_component import PerComponent, placed


class State(eqx.Module):
    """Everything a run carries from one iteration to the next."""

    key: PRNGKey
    iteration: Count
    mixture: Mixture
    """Padded to the capacity; absent components have log weight -inf."""
    prior: Mixture
    """One Gaussian: the region in which components are expected."""
    ids: Int[Array, " K"]
    """The component in each slot: a number in order of birth."""
    births: Count
    updates: PerComponent[Int[Array, " K"]]
    rewards: PerComponent[Rewards]
    sample_selector: PyTree
    component_stepsize: PyTree
    ng_estimator: PyTree
    weight_stepsize: PyTree
    component_adaptation: PyTree


class Info(eqx.Module):
    """What happened in one iteration."""

    elbo: Scalar
    """Eq. 1 on this iteration's samples, with the weights before their update (T = 1).

    Densities of zero enter with their penalty; the true ELBO is then -inf.
    """
    elbo_se: Scalar
    components: Count
    evaluations: Count
    """New evaluations of the target."""
    zeros: Count
    """Of these, log densities of -inf."""
    invalid: Count
    """Of these, NaN, +inf or with a gradient that is not finite: excluded from the updates."""
    failed_updates: Count
    """Components whose update failed; they stay as they were."""
    effective_samples: Scalar
    """Smallest effective sample size of a component."""
    component_stepsize: Scalar
    """Mean over components."""
    weight_stepsize: Scalar
    entropy: Scalar
    """-E[log q] on the same samples."""
    kl: Scalar
    """KL(q || p) by the same samples, log E[w] - E[log w] with w = p~/q: blind to what they miss."""
    added: Flag
    deleted: Count
    candidate_gain: Scalar
    """log p~ - log q at the mean of the new component; -inf if the iteration adds none."""


def placed_state(state: State) -> State:
    """On several devices: components are split among them, everything else is replicated."""
    return dataclasses.replace(placed(state), mixture=split(state.mixture), ids=split(state.ids))


def padded(mixture: Mixture, capacity: int) -> Mixture:
    """The mixture with absent components up to ``capacity``."""
    order = jnp.concatenate(
        [jnp.arange(mixture.num_components), jnp.full(capacity - mixture.num_components, -1)]
    )
    return take_components(mixture, order)


def take_components(mixture: Mixture, order: Int[Array, " K2"]) -> Mixture:
    """The slots in a new order; -1 stands for an absent component (its parameters are a placeholder)."""
    keep = order >= 0
    spare = type(mixture.components).isotropic(
        jnp.zeros((order.shape[0], mixture.dim), mixture.dtype), jnp.ones(order.shape[0], mixture.dtype)
    )
    slots = jnp.maximum(order, 0)
    components = mixture.components.take(slots).where(keep, spare)
    return Mixture(jnp.where(keep, mixture.log_weights[slots], -jnp.inf), components)
