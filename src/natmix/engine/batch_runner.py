"""A batch of states advanced at once, by `jax.vmap` of the step."""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from natmix.array_types import Count, PyTree
from natmix.engine.info_log import InfoLog
from natmix.engine.runner import CHUNK, AbstractRunner, Chunk, SlotUse, clipped, resized
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import quick_jit
from natmix.kernels.threads import single_threaded_blas
from natmix.modules.state import Info, State
from natmix.targets import AbstractTarget


class BatchTargets(eqx.Module):
    """The targets of a batch of runs: arrays that differ are stacked, shared ones are kept once.

    Attributes:
        varying: arrays whose first axis is that of the runs; None where the targets agree.
        common: everything else.
    """

    varying: PyTree
    common: PyTree

    @classmethod
    def build(cls, targets: Sequence[AbstractTarget]) -> "BatchTargets":
        """From targets that can be evaluated together (`obstacle` returns None)."""
        arrays, rest = zip(*(eqx.partition(t, eqx.is_array) for t in targets), strict=True)
        varying = jax.tree.map(lambda *a: None if _same(a) else jnp.stack(a), *arrays)
        shared = jax.tree.map(lambda *a: a[0] if _same(a) else None, *arrays)
        return cls(varying, eqx.combine(shared, rest[0]))


def obstacle(targets: Sequence[AbstractTarget]) -> str | None:
    """Why these targets cannot be evaluated together, in a few words; None if they can."""
    if not all(t.inside_jax for t in targets):
        return "a target outside JAX is evaluated for one run at a time"
    arrays, rest = zip(*(eqx.partition(t, eqx.is_array) for t in targets), strict=True)
    if any(not eqx.tree_equal(rest[0], r) for r in rest[1:]):
        return "their targets are different functions"
    first = jax.tree.leaves(arrays[0])
    for other in arrays[1:]:
        for a, b in zip(first, jax.tree.leaves(other), strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"their targets' data differ in shape ({a.shape} and {b.shape}) or type"
    return None


def _same(arrays: Sequence[Array]) -> bool:
    return all(a is arrays[0] or np.array_equal(a, arrays[0], equal_nan=True) for a in arrays[1:])


class BatchArguments(eqx.Module):
    """What a chunk needs, apart from the states it changes."""

    algorithm: GMMVI
    targets: BatchTargets
    iterations: Count
    budgets: Int[Array, " S"]
    """Evaluations of the target that each run may still spend."""
    active: Bool[Array, " S"]
    """Runs that go on; the others have ended, and their results are ignored."""


class StateBatch(NamedTuple):
    """The states of several runs. The runs are the first axis of all arrays but the iteration."""

    states: State
    """Their ``iteration`` is None."""
    iteration: Count

    @property
    def size(self) -> int:
        """How many runs there are."""
        return int(self.states.ids.shape[0])

    @property
    def capacity(self) -> int:
        """Slots for components, the same for all."""
        return int(self.states.ids.shape[1])


@quick_jit(donate="all-except-first")
def _batch_chunk(
    arguments: BatchArguments, batch: StateBatch
) -> tuple[StateBatch, tuple[State, ...], InfoLog, Count, Bool[Array, " S"]]:
    """Up to ``arguments.iterations`` steps of all runs; stops early when one lacks a free slot or budget.

    The iteration is one number for all runs, so that what depends on it alone is computed once.
    """
    algo = arguments.algorithm

    def one(state: State, varying: PyTree, iteration: Count) -> tuple[State, Info]:
        state, info = algo.step(_at(state, iteration), eqx.combine(varying, arguments.targets.common))
        return _at(state, None), info

    step = jax.vmap(one, in_axes=(0, 0, None))
    _, blank = jax.eval_shape(step, batch.states, arguments.targets.varying, batch.iteration)

    def affordable(batch: StateBatch, spent: Array) -> Bool[Array, " S"]:
        at_most = algo.next_evaluations_at_most
        bound = jax.vmap(lambda s: at_most(_at(s, batch.iteration)))(batch.states)
        return spent <= arguments.budgets - bound

    def more(carry: tuple[Count, Array, StateBatch, InfoLog]) -> Bool[Array, ""]:
        i, spent, batch, _ = carry
        room = ~jax.vmap(lambda s: algo.needs_room(_at(s, batch.iteration)))(batch.states)
        ready = affordable(batch, spent) & room
        return (i < arguments.iterations) & jnp.all(ready | ~arguments.active)

    def advance(carry: tuple[Count, Array, StateBatch, InfoLog]) -> tuple[Count, Array, StateBatch, InfoLog]:
        i, spent, batch, log = carry
        states, info = step(batch.states, arguments.targets.varying, batch.iteration)
        return i + 1, spent + info.evaluations, StateBatch(states, batch.iteration + 1), log.put(i, info)

    start = (
        jnp.zeros((), jnp.int32),
        jnp.zeros(batch.size, jnp.int32),
        batch,
        InfoLog.empty(CHUNK, blank),
    )
    i, spent, batch, log = jax.lax.while_loop(more, advance, start)
    brief = StateBatch(_without_samples(batch.states), batch.iteration)
    ends = tuple(_state_of(brief, place) for place in range(batch.size))
    return batch, ends, log, i, affordable(batch, spent)


@quick_jit()
def _stacked(states: tuple[State, ...]) -> StateBatch:
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *(_at(s, None) for s in states))
    return _own_batch(stacked, states[0].iteration)


@quick_jit()
def _state_of(batch: StateBatch, place: Count | int) -> State:
    return _at(jax.tree.map(lambda a: a[place], batch.states), batch.iteration)


@quick_jit()
def _some_of(batch: StateBatch, places: Int[Array, " S2"]) -> StateBatch:
    return _own_batch(jax.tree.map(lambda a: a[places], batch.states), batch.iteration)


@quick_jit()
def _batch_resized(algorithm: GMMVI, batch: StateBatch, capacity: int) -> StateBatch:
    def one(state: State) -> State:
        return _at(algorithm.resized(_at(state, batch.iteration), capacity), None)

    return _own_batch(jax.vmap(one)(batch.states), batch.iteration)


def _own_batch(states: State, iteration: Count) -> StateBatch:
    """A batch that may be donated: it shares no array."""
    return StateBatch(states, jnp.array(iteration, copy=True))


def _without_samples(state: State) -> State:
    """The state without its stored samples, which are most of its memory."""
    return dataclasses.replace(state, sample_selector=None, component_adaptation=None)


def _at(state: State, iteration: Any) -> State:
    """The state with this ``iteration``; None in a batch, where all runs share one."""
    return dataclasses.replace(state, iteration=iteration)


class BatchRunner(AbstractRunner):
    """Advances a batch of states in step: same algorithm, same iteration, targets of a kind.

    All have the same capacity, that of the largest. A run that has ended keeps its place, and its results are
    ignored. Once half of the runs have ended, a program for the others is compiled. The states that
    `advance_batch` returns lack their stored samples, which stay in arrays of the whole batch:
    `Chunk.full_state` returns them.
    """

    def __init__(
        self,
        algorithm: GMMVI,
        targets: Sequence[AbstractTarget],
        most_components: int,
        shrink_every: int = CHUNK,
    ) -> None:
        super().__init__(algorithm, targets[0].dim, most_components, shrink_every)
        self._places = list(targets)
        self._targets = BatchTargets.build(targets)
        self._batch: StateBatch | None = None
        self._last: list[State] = []

    def next_capacity(self, states: Sequence[State]) -> int:
        """The capacity that the next call of `advance_batch` would use for these states."""
        weights = jax.device_get([s.mixture.log_weights for s in states])
        present = [int(np.sum(w > -np.inf)) for w in weights]
        use = [
            SlotUse(len(w), k == len(w) and bool(self.algorithm.needs_room(s)))
            for s, w, k in zip(states, weights, present, strict=True)
        ]
        stored = states[0] if self._batch is None else self._batch.states
        may_shrink = stored.sample_selector is None
        return self._wanted_capacity(use, lambda: max(present), int(states[0].iteration), may_shrink)

    def advance_batch(
        self, states: Sequence[State], iterations: int, budgets: Sequence[int | None]
    ) -> list[Chunk]:
        """At most ``iterations`` more steps of all states."""
        with single_threaded_blas():
            return self._advance(states, iterations, budgets)

    def _advance(
        self, states: Sequence[State], iterations: int, budgets: Sequence[int | None]
    ) -> list[Chunk]:
        start = time.perf_counter()
        capacity = self.next_capacity(states)
        if capacity > max(s.mixture.num_components for s in states):
            self._check_room(states[0], capacity, len(states))
        places, batch = self._seated(states, capacity)
        active = np.zeros(batch.size, bool)
        active[places] = True
        budget = np.zeros(batch.size, np.int32)
        budget[places] = [clipped(b) for b in budgets]
        if (batch.size, capacity) not in self._warm:
            self._background.wait_for(capacity)
            batch = self._compiled(batch)
            self._warm.add((batch.size, capacity))
            self.compile_seconds += time.perf_counter() - start
        arguments = self._arguments(min(iterations, CHUNK), budget, active)
        self._batch = None  # donated, even if the call fails
        batch, ends, log, done, affordable = _batch_chunk(arguments, batch)
        self._batch, self._last = batch, list(ends)
        log, done, enough = jax.device_get((log, done, affordable))
        n = int(done)
        if n == 0 and iterations > 0 and np.all(enough[places]):
            raise RuntimeError(
                f"The batch of seeds cannot go on with {capacity} slots for components; run the seeds with "
                "--apart."
            )
        arrays = log.arrays(n)
        if n:
            self._compile_larger(
                batch.size,
                ends[0],
                int(arrays["components"][-1].max()),
                lambda larger: functools.partial(
                    self._compiled, _batch_resized(self.algorithm, batch, larger)
                ),
            )
        return [
            Chunk(
                ends[p],
                {k: v[:, p] for k, v in arrays.items()},
                n == 0 and not enough[p],
                functools.partial(self._full_state, batch, p),
            )
            for p in places
        ]

    def _full_state(self, batch: StateBatch, place: int) -> State:
        if batch is not self._batch:
            raise RuntimeError(
                "The batch has gone on: the stored samples of this run are no longer available."
            )
        return _state_of(batch, jnp.asarray(place))

    def _compiled(self, batch: StateBatch) -> StateBatch:
        """Compile the program by a chunk of no iterations; returns the states unchanged."""
        nothing = np.zeros(batch.size, np.int32)
        batch, *_ = _batch_chunk(self._arguments(0, nothing, nothing.astype(bool)), batch)
        return jax.block_until_ready(batch)

    def _arguments(self, iterations: int, budget: np.ndarray, active: np.ndarray) -> BatchArguments:
        return BatchArguments(
            self.algorithm,
            self._targets,
            jnp.asarray(iterations, jnp.int32),
            jnp.asarray(budget, jnp.int32),
            jnp.asarray(active),
        )

    def _seated(self, states: Sequence[State], capacity: int) -> tuple[list[int], StateBatch]:
        """The places of these states, and the states of all places with this capacity."""
        if self._batch is None:
            batch, places = _stacked(tuple(_with_capacity(self.algorithm, s, capacity) for s in states)), None
        else:
            place = {id(s): p for p, s in enumerate(self._last)}
            batch, places = self._batch, [place[id(s)] for s in states]
            if 2 * len(places) <= batch.size:
                self._places = [self._places[p] for p in places]
                self._targets = BatchTargets.build(self._places)
                batch, places = _some_of(batch, jnp.asarray(places)), None
            if batch.capacity != capacity:
                batch = _batch_resized(self.algorithm, batch, capacity)
        return list(range(batch.size)) if places is None else places, batch


def _with_capacity(algorithm: GMMVI, state: State, capacity: int) -> State:
    return state if state.mixture.num_components == capacity else resized(algorithm, state, capacity)
