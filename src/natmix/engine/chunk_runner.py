"""One state advanced in compiled chunks of iterations."""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natmix.array_types import Count, Flag
from natmix.engine.info_log import InfoLog
from natmix.engine.runner import CHUNK, AbstractRunner, Chunk, SlotUse, clipped, resized
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import (
    Rest,
    callbacks_quiet,
    collector_paused,
    parted,
    quick_array_jit,
    quick_jit,
)
from natmix.kernels.plan import using
from natmix.kernels.sharding import everywhere
from natmix.kernels.threads import single_threaded_blas
from natmix.modules.records import Evaluation, Query
from natmix.modules.state import Info, State
from natmix.targets import AbstractTarget


class ChunkEnd(NamedTuple):
    """What the host reads after a chunk."""

    log: InfoLog
    done: Count
    iteration: Count
    full: Flag
    """Whether the next step needs a larger capacity."""


@eqx.filter_jit
def _step(algorithm: GMMVI, target: AbstractTarget, state: State) -> tuple[State, Info]:
    """A compiled function of its own, so that it is traced once although a chunk uses it twice."""
    return algorithm.step(state, target)


@quick_array_jit(static_argnums=(0,), donate_argnums=(4,))
def _chunk(
    rest: Rest, arrays: tuple[Array | None, ...], iterations: Count, budget: Count, state: State
) -> tuple[State, ChunkEnd]:
    """Up to ``iterations`` steps; stops early when a free slot or budget is lacking."""
    algo, target = rest.joined(arrays)
    _, blank = eqx.filter_eval_shape(_step, algo, target, state)

    def more(carry: tuple[Count, Count, State, InfoLog]) -> Flag:
        i, spent, state, _ = carry
        affordable = spent <= budget - algo.next_evaluations_at_most(state)
        return (i < iterations) & affordable & ~algo.needs_room(state)

    def step(carry: tuple[Count, Count, State, InfoLog]) -> tuple[Count, Count, State, InfoLog]:
        i, spent, state, log = carry
        state, info = _step(algo, target, state)
        return i + 1, spent + info.evaluations, state, log.put(i, info)

    zero = jnp.zeros((), jnp.int32)
    start = (zero, zero, state, InfoLog.empty(CHUNK, blank))
    i, _, state, log = jax.lax.while_loop(more, step, start)
    return state, ChunkEnd(log, i, state.iteration, algo.needs_room(state))


@quick_jit()
def _ask(algorithm: GMMVI, state: State) -> Query:
    return algorithm.ask(state)


@quick_jit(donate="all-except-first")
def _tell(algorithm: GMMVI, state: State, query: Query, evaluation: Evaluation) -> tuple[State, Info]:
    return algorithm.tell(state, query, evaluation)


@quick_jit()
def _outlook(algorithm: GMMVI, state: State) -> tuple[Flag, Count]:
    return algorithm.needs_room(state), algorithm.next_evaluations_at_most(state)


class ChunkRunner(AbstractRunner):
    """Advances one state.

    Runs one after another share their compiled programs, because a target's data are arguments of the
    program.
    """

    def __init__(
        self, algorithm: GMMVI, target: AbstractTarget, most_components: int, shrink_every: int = CHUNK
    ) -> None:
        with using(algorithm.plan()):
            self.target = everywhere(target)
            super().__init__(everywhere(algorithm), target.dim, most_components, shrink_every)
        self._known: tuple[State, bool, int] | None = None
        """The last state, whether it needs room, and its iteration: reading them from the device is slow."""

    def advance_batch(
        self, states: Sequence[State], iterations: int, budgets: Sequence[int | None]
    ) -> list[Chunk]:
        """At most ``iterations`` more steps of the one state."""
        (state,), (budget,) = states, budgets
        return [self.advance(state, iterations, budget)]

    def advance(self, state: State, iterations: int, budget: int | None) -> Chunk:
        """At most ``iterations`` more steps, at least one unless the budget forbids."""
        with using(self._plan(state)):
            if not self.target.inside_jax:  # it may want all threads for itself
                return self._advance(state, iterations, budget)
            with single_threaded_blas():
                return self._advance(state, iterations, budget)

    def _advance(self, state: State, iterations: int, budget: int | None) -> Chunk:
        start = time.perf_counter()
        capacity = state.mixture.num_components
        state = self._fitted(state)
        if not self._warm or state.mixture.num_components != capacity:
            self.compile_seconds += time.perf_counter() - start
        if self.target.inside_jax:
            return self._advance_inside(state, min(iterations, CHUNK), clipped(budget))
        return self._advance_outside(state, clipped(budget))

    def _fitted(self, state: State) -> State:
        """The state with the capacity that the next chunk needs."""
        if self._known is None or self._known[0] is not state:
            self._known = state, bool(_outlook(self.algorithm, state)[0]), int(state.iteration)
        _, full, iteration = self._known
        capacity = state.mixture.num_components

        def present() -> int:
            return int(np.sum(np.asarray(state.mixture.log_weights) > -np.inf))

        may_shrink = state.sample_selector is None
        wanted = self._wanted_capacity([SlotUse(capacity, full)], present, iteration, may_shrink)
        if wanted > capacity:
            self._check_room(state, wanted)
        return state if wanted == capacity else resized(self.algorithm, state, wanted)

    # A target inside JAX ------------------------------------------------------------------------

    def _advance_inside(self, state: State, iterations: int, budget: int) -> Chunk:
        capacity = state.mixture.num_components
        if (1, capacity) not in self._warm:
            with self._compiling():
                self._background.wait_for(capacity)
                state = self._compiled(state)
                self._warm.add((1, capacity))
        with callbacks_quiet():
            state, end = _chunk.jitted(*self._arguments(iterations, budget, state))
            end = jax.device_get(end)  # all at once: each copy waits for the device
        self._known = state, bool(end.full), int(end.iteration)
        n = int(end.done)
        arrays = end.log.arrays(n)
        if n:
            self._compile_larger(
                1,
                state,
                int(arrays["components"][-1]),
                lambda larger: functools.partial(self._compiled, resized(self.algorithm, state, larger)),
            )
        return Chunk(state, arrays, exhausted=n == 0 and iterations > 0)

    def _compiled(self, state: State) -> State:
        """Compile the program by a chunk of no iterations; returns the state unchanged."""
        with collector_paused(), using(self.algorithm.plan(state)):
            state, _ = _chunk.jitted(*self._arguments(0, 0, state))
        return jax.block_until_ready(state)

    def lowered(self, state: State) -> jax.stages.Lowered:
        """The program for a chunk, not yet compiled."""
        with using(self._plan(state)):
            return _chunk.lower(*self._arguments(0, 0, state))

    def _arguments(self, iterations: int, budget: int, state: State) -> tuple[Any, ...]:
        arrays, rest = self._parts
        return rest, arrays, np.int32(iterations), np.int32(budget), state

    @functools.cached_property
    def _parts(self) -> tuple[tuple[Array | None, ...], Rest]:
        return parted((self.algorithm, self.target))

    # A target outside JAX -----------------------------------------------------------------------

    def _advance_outside(self, state: State, budget: int) -> Chunk:
        """One iteration: ask, evaluate on the host, tell."""
        _, bound = _outlook(self.algorithm, state)
        if int(bound) > budget:
            return Chunk(state, {f.name: np.zeros(0) for f in dataclasses.fields(Info)}, exhausted=True)
        start = time.perf_counter()
        query = jax.block_until_ready(_ask(self.algorithm, state))
        asked = time.perf_counter()
        evaluation = self.algorithm.evaluate(state, query, self.target)
        evaluated = time.perf_counter()
        capacity = state.mixture.num_components
        state, info = jax.block_until_ready(_tell(self.algorithm, state, query, evaluation))
        if (1, capacity) not in self._warm:
            self._warm.add((1, capacity))
            self.compile_seconds += (asked - start) + (time.perf_counter() - evaluated)
        arrays = {f.name: np.asarray(getattr(info, f.name))[None] for f in dataclasses.fields(info)}
        return Chunk(state, arrays, exhausted=False)
