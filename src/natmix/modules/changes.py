"""How one iteration changes the components: their update, additions and deletions, and its report."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Flag, Scalar
from natmix.gaussians import AbstractGaussians
from natmix.kernels.blocks import map_components, rows_at_once
from natmix.kernels.importance_sums import effective_samples
from natmix.kernels.sharding import everywhere_alike
from natmix.mixture import Mixture
from natmix.modules.component_adaptation.base import Change, NewSamples
from natmix.modules.component_updaters import AbstractComponentUpdater
from natmix.modules.expectations import ElboEstimate
from natmix.modules.per_component import reset_row, set_row
from natmix.modules.records import Batch, Evaluation, NaturalGradient, Query
from natmix.modules.state import Info, State

_UPDATED_ENTRIES = 2**12
"""Entries of the covariances that are updated at once on a CPU: one component alone where it has more."""


def updated(
    updater: AbstractComponentUpdater,
    mixture: Mixture,
    natural_gradient: NaturalGradient,
    stepsizes: Float[Array, " K"],
    updates: Int[Array, " K"],
    T: Scalar,
) -> tuple[AbstractGaussians, Bool[Array, " K"]]:
    """The components after their update, and which of them were changed."""
    present = mixture.log_weights > -jnp.inf
    if updater.has_loops(mixture.components):
        return updater.update(mixture.components, natural_gradient, stepsizes, updates, T, present)
    at_once = rows_at_once(8 * mixture.dim**2, on_cpu=max(1, _UPDATED_ENTRIES // mixture.dim**2))
    rows = (mixture.components, natural_gradient, stepsizes, updates)
    components, success = map_components(Partial(_update, updater, T), rows, present, at_once)
    return components.where(present, mixture.components), success


def _update(
    updater: AbstractComponentUpdater,
    T: Scalar,
    components: AbstractGaussians,
    natural_gradient: NaturalGradient,
    stepsizes: Float[Array, " B"],
    updates: Int[Array, " B"],
) -> tuple[AbstractGaussians, Bool[Array, " B"]]:
    return updater.update(components, natural_gradient, stepsizes, updates, T)


def candidates(query: Query, evaluation: Evaluation) -> NewSamples:
    """The fresh candidates for a new component among the evaluated points."""
    n = query.draws.x.shape[0]
    C = query.points.shape[0] - n
    start = query.draws.count
    take = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=C, axis=0)
    real = jnp.arange(C) < query.count - start
    return NewSamples(take(query.points), take(evaluation.log_density), real)


def apply_change(state: State, change: Change) -> tuple[State, Flag]:
    """Delete and add components; a new one takes the first free row."""
    log_weights = jnp.where(change.delete, -jnp.inf, state.mixture.log_weights)
    log_weights = everywhere_alike(jax.nn.log_softmax, log_weights)
    free = log_weights == -jnp.inf
    row = jnp.argmax(free)
    add = change.add & free[row]
    newcomer = type(state.mixture.components).isotropic(change.mean[None], change.scale[None])
    components = set_row(state.mixture.components, row, jax.tree.map(lambda a: a[0], newcomer), add)
    log_weights = set_row(log_weights, row, change.log_weight, add)
    ids = set_row(state.ids, row, state.births, add)
    state = reset_row(state, row, add)
    state = dataclasses.replace(
        state,
        mixture=Mixture(everywhere_alike(jax.nn.log_softmax, log_weights), components),
        ids=ids,
        births=state.births + add.astype(jnp.int32),
    )
    return state, add


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
        added=jnp.zeros((), bool),
        deleted=jnp.zeros((), jnp.int32),
        candidate_gain=jnp.full_like(elbo.value, -jnp.inf),
    )
