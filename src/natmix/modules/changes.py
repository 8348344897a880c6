"""Adding and deleting components at the end of an iteration, and the iteration's report."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natmix.array_types import Flag, Scalar
from natmix.kernels.importance_sums import effective_samples
from natmix.kernels.sharding import everywhere_alike
from natmix.kernels.slots import set_slot
from natmix.mixture import Mixture
from natmix.modules.component_adaptation.base import Change, EvaluatedSamples
from natmix.modules.expectations import ElboEstimate
from natmix.modules.per_component import reset_slot, take_slots
from natmix.modules.records import Batch, Evaluation, Query
from natmix.modules.state import Info, State


def candidates(query: Query, evaluation: Evaluation) -> EvaluatedSamples:
    """The fresh candidates for a new component among the evaluated points."""
    n = query.draws.x.shape[0]
    C = query.points.shape[0] - n
    start = query.draws.count
    take = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=C, axis=0)
    real = jnp.arange(C) < query.count - start
    return EvaluatedSamples(take(query.points), take(evaluation.log_density), real)


def apply_change(state: State, change: Change) -> tuple[State, Flag]:
    """Delete and add components; a new one takes the first free slot."""
    log_weights = jnp.where(change.delete, -jnp.inf, state.mixture.log_weights)
    log_weights = everywhere_alike(jax.nn.log_softmax, log_weights)
    free = log_weights == -jnp.inf
    slot = jnp.argmax(free)
    add = change.add & free[slot]
    newcomer = type(state.mixture.components).isotropic(change.mean[None], change.scale[None])
    components = set_slot(state.mixture.components, slot, jax.tree.map(lambda a: a[0], newcomer), add)
    log_weights = set_slot(log_weights, slot, change.log_weight, add)
    ids = set_slot(state.ids, slot, state.births, add)
    state = reset_slot(state, slot, add)
    state = dataclasses.replace(
        state,
        mixture=Mixture(everywhere_alike(jax.nn.log_softmax, log_weights), components),
        ids=ids,
        births=state.births + add.astype(jnp.int32),
    )
    return state, add


def insert_components(state: State, new: Mixture, kept: Scalar | float) -> State:
    """Put the components of ``new`` into free slots, with their weights; the present ones keep a share.

    Args:
        state: with at least as many free slots.
        new: components whose weights are shares of the total mass; absent ones, which come last, are ignored.
        kept: the share of the present components.
    """
    log_weights = state.mixture.log_weights
    capacity, count = log_weights.shape[0], jnp.sum(new.log_weights > -jnp.inf)
    free = jnp.flatnonzero(log_weights == -jnp.inf, size=new.num_components, fill_value=capacity)
    number = jnp.full(capacity, -1).at[free].set(jnp.arange(new.num_components), mode="drop")
    taken = (number >= 0) & (number < count)
    slots = jnp.maximum(number, 0)
    order = jnp.where(taken, -1, jnp.arange(capacity))
    components = new.components.take(slots).where(taken, state.mixture.components)
    weights = jnp.where(taken, new.log_weights[slots], log_weights + jnp.log(kept))
    return dataclasses.replace(
        take_slots(state, order),
        mixture=Mixture(everywhere_alike(jax.nn.log_softmax, weights), components),
        ids=jnp.where(taken, state.births + slots, state.ids).astype(state.ids.dtype),
        births=(state.births + count).astype(state.births.dtype),
    )


def iteration_info(
    before: State,
    after: State,
    query: Query,
    evaluation: Evaluation,
    batch: Batch,
    elbo: ElboEstimate,
    success: Bool[Array, " K"],
    stepsizes: Float[Array, " K"],
    weight_stepsize: Scalar,
) -> Info:
    """The report of one iteration."""
    exists = before.mixture.log_weights > -jnp.inf
    asked = jnp.arange(query.points.shape[0]) < query.count
    value = evaluation.log_density
    bad = ~(value < jnp.inf)
    if evaluation.gradient is not None:
        steep = ~jnp.all(jnp.isfinite(evaluation.gradient), axis=1)
        bad = bad | (steep & (value > -jnp.inf))
    n_eff = effective_samples(batch.log_components, batch)
    K = jnp.sum(exists)
    return Info(
        elbo=elbo.value,
        elbo_se=elbo.se,
        components=jnp.sum(after.mixture.log_weights > -jnp.inf, dtype=jnp.int32),
        evaluations=query.count,
        zeros=jnp.sum(asked & (value == -jnp.inf), dtype=jnp.int32),
        invalid=jnp.sum(asked & bad, dtype=jnp.int32),
        failed_updates=jnp.sum(exists & ~success, dtype=jnp.int32),
        effective_samples=jnp.min(jnp.where(exists, n_eff, jnp.inf)),
        component_stepsize=jnp.sum(jnp.where(exists, stepsizes, 0)) / K,
        weight_stepsize=weight_stepsize,
        entropy=elbo.entropy,
        kl=elbo.kl,
        added=jnp.zeros((), bool),
        deleted=jnp.zeros((), jnp.int32),
        candidate_gain=jnp.full_like(elbo.value, -jnp.inf),
    )
