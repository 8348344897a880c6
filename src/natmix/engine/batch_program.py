"""The compiled programs of a batch of runs: the step under `jax.vmap`."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from natmix.array_types import Count, PyTree
from natmix.engine.info_log import InfoLog
from natmix.engine.runner import CHUNK
from natmix.engine.stacking import Stacked, put_rows
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import quick_jit
from natmix.kernels.plan import current, using
from natmix.modules.state import Info, State

_SHARED: Any = None
"""The iteration of a state that shares it with the others of its batch."""


class BatchArguments(eqx.Module):
    """What a chunk needs, apart from the states it changes."""

    runs: Stacked
    """An algorithm and a target for each."""
    iterations: Count
    budgets: Int[Array, " S"]
    """Evaluations of the target that each run may still spend."""
    active: Bool[Array, " S"]
    """Runs that go on; the others have ended, and their results are ignored."""


class StateBatch(NamedTuple):
    """The states of several runs. The runs are the first axis of all arrays but the iteration."""

    states: State
    """Their ``iteration`` is None if all share one."""
    iteration: Count | None
    """One number for all runs, so that what depends on it alone is computed once; None: each has its own."""

    @property
    def size(self) -> int:
        """How many runs there are."""
        return int(self.states.ids.shape[0])

    @property
    def capacity(self) -> int:
        """Slots for components, the same for all."""
        return int(self.states.ids.shape[1])


class BatchEnd(NamedTuple):
    """What the host reads after a chunk."""

    log: InfoLog
    done: Count
    affordable: Bool[Array, " S"]
    """Whether the next step is within the budget of each run."""
    full: Bool[Array, " S"]
    """Whether the next step of each run needs a larger capacity."""
    present: Int[Array, " S"]
    """Components of each run."""


def _batch_chunk(
    arguments: BatchArguments, batch: StateBatch
) -> tuple[StateBatch, tuple[State, ...], BatchEnd]:
    """Up to ``arguments.iterations`` steps of all runs; stops early when one lacks a free slot or budget.

    Returns:
        The batch, the states without their samples, and what the host reads.
    """
    runs = arguments.runs

    def one(varying: PyTree, state: State, iteration: Count | None) -> tuple[State, Info]:
        algorithm, target = eqx.combine(varying, runs.common)
        with using(dataclasses.replace(current(), together=batch.size)):
            state, info = algorithm.step(_at(state, iteration), target)
        return _apart(state, iteration), info

    step = jax.vmap(one, in_axes=(0, 0, None))
    _, blank = jax.eval_shape(step, runs.varying, batch.states, batch.iteration)

    def full(batch: StateBatch) -> Bool[Array, " S"]:
        def needs_room(varying: PyTree, state: State) -> Array:
            return eqx.combine(varying, runs.common)[0].needs_room(_at(state, batch.iteration))

        return jax.vmap(needs_room)(runs.varying, batch.states)

    def affordable(batch: StateBatch, spent: Array) -> Bool[Array, " S"]:
        def bound(varying: PyTree, state: State) -> Count:
            at_most: Count = eqx.combine(varying, runs.common)[0].next_evaluations_at_most(
                _at(state, batch.iteration)
            )
            return at_most

        return spent <= arguments.budgets - jax.vmap(bound)(runs.varying, batch.states)

    def more(carry: tuple[Count, Array, StateBatch, InfoLog]) -> Bool[Array, ""]:
        i, spent, batch, _ = carry
        ready = affordable(batch, spent) & ~full(batch)
        return (i < arguments.iterations) & jnp.all(ready | ~arguments.active)

    def advance(carry: tuple[Count, Array, StateBatch, InfoLog]) -> tuple[Count, Array, StateBatch, InfoLog]:
        i, spent, batch, log = carry
        states, info = step(runs.varying, batch.states, batch.iteration)
        iteration = None if batch.iteration is None else batch.iteration + 1
        return i + 1, spent + info.evaluations, StateBatch(states, iteration), log.put(i, info)

    start = (
        jnp.zeros((), jnp.int32),
        jnp.zeros(batch.size, jnp.int32),
        batch,
        InfoLog.empty(CHUNK, blank),
    )
    i, spent, batch, log = jax.lax.while_loop(more, advance, start)
    brief = StateBatch(_without_samples(batch.states), batch.iteration)
    ends = tuple(state_of(brief, place) for place in range(batch.size))
    present = jnp.sum(batch.states.mixture.log_weights > -jnp.inf, axis=1, dtype=jnp.int32)
    return batch, ends, BatchEnd(log, i, affordable(batch, spent), full(batch), present)


batch_chunk = quick_jit(donate="all-except-first", tuned=True)(_batch_chunk)
trial_chunk = quick_jit(donate="all-except-first")(_batch_chunk)
"""The same for runs too short to make up for the time in which a compiler tries kernels."""


@quick_jit()
def stacked(states: tuple[State, ...], one_iteration: bool) -> StateBatch:
    """The batch of these states, which are at the same iteration if they share ``one_iteration``."""
    iteration = states[0].iteration if one_iteration else None
    parts = [_apart(s, iteration) for s in states]
    return _own_batch(jax.tree.map(lambda *a: jnp.stack(a), *parts), iteration)


@quick_jit()
def state_of(batch: StateBatch, place: Count | int) -> State:
    """The state in this place."""
    return _at(jax.tree.map(lambda a: a[place], batch.states), batch.iteration)


@quick_jit()
def some_of(batch: StateBatch, places: Int[Array, " S2"]) -> StateBatch:
    """The batch of the runs in these places."""
    return _own_batch(jax.tree.map(lambda a: a[places], batch.states), batch.iteration)


@quick_jit()
def batch_resized(algorithm: GMMVI, batch: StateBatch, capacity: int) -> StateBatch:
    """The batch with another capacity."""

    def one(state: State) -> State:
        return _apart(algorithm.resized(_at(state, batch.iteration), capacity), batch.iteration)

    return _own_batch(jax.vmap(one)(batch.states), batch.iteration)


@quick_jit()
def filled(state: State, size: int) -> StateBatch:
    """A batch of runs with iterations of their own, all in this state."""
    return StateBatch(jax.tree.map(lambda a: jnp.broadcast_to(a, (size, *a.shape)).copy(), state), None)


@quick_jit()
def with_state(batch: StateBatch, place: Count, state: State) -> StateBatch:
    """The batch, whose runs have iterations of their own, with another state in this place."""
    return StateBatch(put_rows(batch.states, state, place), None)


def _own_batch(states: State, iteration: Count | None) -> StateBatch:
    """A batch that may be donated: it shares no array."""
    return StateBatch(states, None if iteration is None else jnp.array(iteration, copy=True))


def _without_samples(state: State) -> State:
    """The state without its stored samples, which are most of its memory."""
    return dataclasses.replace(state, sample_selector=None, component_adaptation=None)


def _at(state: State, iteration: Any) -> State:
    """The state with the iteration that all runs share, if they share one."""
    return state if iteration is None else dataclasses.replace(state, iteration=iteration)


def _apart(state: State, iteration: Any) -> State:
    """The state without the iteration that all runs share, if they share one."""
    return state if iteration is None else dataclasses.replace(state, iteration=_SHARED)
