"""Run iterations in compiled chunks, growing the number of component rows when they fill up."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natmix.array_types import Count, Flag
from natmix.engine.background_compilation import Ahead
from natmix.engine.capacity import fewest_rows, grown, shrunk
from natmix.engine.info_log import InfoLog
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import (
    Rest,
    callbacks_quiet,
    collector_paused,
    parted,
    quick_array_jit,
    quick_jit,
)
from natmix.kernels.sharding import everywhere, using, whole_rows
from natmix.kernels.threads import single_threaded_blas
from natmix.modules.records import Evaluation, Query
from natmix.modules.state import Info, State
from natmix.targets import AbstractTarget, TargetError

CHUNK = 128
"""The most iterations between two looks of the host."""

_MANY = 2**31 - 1


class ChunkResult(NamedTuple):
    """Where a chunk ended."""

    state: State
    infos: dict[str, np.ndarray]
    exhausted: bool
    """Whether the next iteration might exceed the budget."""
    whole: Callable[[], State] | None = None
    """The state with the samples that it keeps, until the next chunk begins; None if ``state`` has them."""


class Outcome(NamedTuple):
    """What the host wants to know after a chunk."""

    log: InfoLog
    done: Count
    iteration: Count
    full: Flag
    """Whether the next step needs more component rows."""


@eqx.filter_jit
def _step(algorithm: GMMVI, target: AbstractTarget, state: State) -> tuple[State, Info]:
    """Traced once, though a chunk needs it twice."""
    return algorithm.step(state, target)


@quick_array_jit(static_argnums=(0,), donate_argnums=(4,))
def _chunk(
    rest: Rest, arrays: tuple[Array | None, ...], iterations: Count, budget: Count, state: State
) -> tuple[State, Outcome]:
    """Up to ``iterations`` steps of algorithm and target; stops early for lack of room or budget."""
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
    return state, Outcome(log, i, state.iteration, algo.needs_room(state))


@quick_jit()
def _ask(algorithm: GMMVI, state: State) -> Query:
    return algorithm.ask(state)


@quick_jit(donate="all-except-first")
def _tell(algorithm: GMMVI, state: State, query: Query, evaluation: Evaluation) -> tuple[State, Info]:
    return algorithm.tell(state, query, evaluation)


@quick_jit()
def _outlook(algorithm: GMMVI, state: State) -> tuple[Flag, Count]:
    return algorithm.needs_room(state), algorithm.next_evaluations_at_most(state)


@quick_jit()
def _resized(algorithm: GMMVI, state: State, capacity: int) -> State:
    return algorithm.resized(state, capacity)


class Runner:
    """Advances a state and keeps the time spent compiling apart.

    One program serves every iteration with the same number of component rows; there are more of them
    (`natmix.engine.capacity.grown`) when a component is to be added and none is free, and half as many when
    three quarters of them are empty and the number of iterations is a multiple of ``shrink_every``:
    not when the clock says so, because another number of rows may change the last digit of a sum.
    """

    def __init__(
        self, algorithm: GMMVI, target: AbstractTarget, most_components: int, shrink_every: int = CHUNK
    ) -> None:
        with using(algorithm.mesh):
            self.algorithm = everywhere(algorithm)
            self.target = everywhere(target)
        self.most_rows = whole_rows(most_components, algorithm.mesh)
        self.fewest_rows = whole_rows(fewest_rows(target.dim), algorithm.mesh)
        self.shrink_every = shrink_every
        self.compile_seconds = 0.0
        self._warm: set[int] = set()
        self._ahead = Ahead()
        self._known: tuple[State, bool, int] | None = None
        """The last state, whether it is full, its iteration: to ask the device for them takes long."""

    def advance(self, state: State, iterations: int, budget: int | None) -> ChunkResult:
        """At most ``iterations`` more steps, at least one unless the budget forbids."""
        if not self.target.inside_jax:  # it may want all threads for itself
            return self._advance(state, iterations, budget)
        with single_threaded_blas():
            return self._advance(state, iterations, budget)

    def _advance(self, state: State, iterations: int, budget: int | None) -> ChunkResult:
        start = time.perf_counter()
        rows = state.mixture.num_components
        state = self._fitted(state)
        if not self._warm or state.mixture.num_components != rows:
            self.compile_seconds += time.perf_counter() - start
        budget = _MANY if budget is None else max(min(budget, _MANY), 0)
        if self.target.inside_jax:
            return self._advance_inside(state, min(iterations, CHUNK), budget)
        return self._advance_outside(state, budget)

    def _advance_inside(self, state: State, iterations: int, budget: int) -> ChunkResult:
        if state.mixture.num_components not in self._warm:
            start = time.perf_counter()
            self._ahead.wait_for(state.mixture.num_components)
            state = self._compiled(state)
            self._warm.add(state.mixture.num_components)
            self.compile_seconds += time.perf_counter() - start
        with callbacks_quiet():
            state, outcome = _chunk.jitted(*self._arguments(iterations, budget, state))
            outcome = jax.device_get(outcome)  # all at once, for every copy has to wait
        self._known = state, bool(outcome.full), int(outcome.iteration)
        n = int(outcome.done)
        arrays = outcome.log.arrays(n)
        if n:
            self._compile_ahead(state, int(arrays["components"][-1]))
        return ChunkResult(state, arrays, exhausted=n == 0 and iterations > 0)

    def _compile_ahead(self, state: State, components: int) -> None:
        rows = state.mixture.num_components
        more = self._more_rows(state)
        if more not in self._warm and self._ahead.wants(rows, components, more):
            start = time.perf_counter()
            larger = _resized(self.algorithm, state, more)
            self.compile_seconds += time.perf_counter() - start
            self._ahead.start(more, lambda: self._compiled(larger))

    def _compiled(self, state: State) -> State:
        """The state unchanged, once the program for it is compiled: a chunk of no iterations."""
        with collector_paused():
            state, _ = _chunk.jitted(*self._arguments(0, 0, state))
        return jax.block_until_ready(state)

    def lowered(self, state: State) -> jax.stages.Lowered:
        """The program for a chunk, not yet compiled."""
        return _chunk.lower(*self._arguments(0, 0, state))

    def _arguments(self, iterations: int, budget: int, state: State) -> tuple[Any, ...]:
        arrays, rest = self._parts
        return rest, arrays, np.int32(iterations), np.int32(budget), state

    @functools.cached_property
    def _parts(self) -> tuple[tuple[Array | None, ...], Rest]:
        return parted((self.algorithm, self.target))

    def _advance_outside(self, state: State, budget: int) -> ChunkResult:
        _, bound = _outlook(self.algorithm, state)
        if int(bound) > budget:
            return ChunkResult(state, {f.name: np.zeros(0) for f in dataclasses.fields(Info)}, exhausted=True)
        start = time.perf_counter()
        query = jax.block_until_ready(_ask(self.algorithm, state))
        asked = time.perf_counter()
        evaluation = self.algorithm.evaluate(state, query, self.target)
        evaluated = time.perf_counter()
        rows = state.mixture.num_components
        state, info = jax.block_until_ready(_tell(self.algorithm, state, query, evaluation))
        if rows not in self._warm:
            self._warm.add(rows)
            self.compile_seconds += (asked - start) + (time.perf_counter() - evaluated)
        arrays = {f.name: np.asarray(getattr(info, f.name))[None] for f in dataclasses.fields(info)}
        return ChunkResult(state, arrays, exhausted=False)

    def _more_rows(self, state: State) -> int:
        mixture = state.mixture
        return min(grown(self.algorithm, mixture.num_components, mixture.dim), self.most_rows)

    def _fitted(self, state: State) -> State:
        """The state with a fitting number of rows."""
        rows = state.mixture.num_components
        if self._known is None or self._known[0] is not state:
            self._known = state, bool(_outlook(self.algorithm, state)[0]), int(state.iteration)
        _, full, iteration = self._known
        if full:
            return _resized(self.algorithm, state, self._more_rows(state))
        if iteration % self.shrink_every:
            return state
        present = int(np.sum(np.asarray(state.mixture.log_weights) > -np.inf))
        can_shrink = state.sample_selector is None
        if can_shrink and rows > self.fewest_rows and 4 * present <= rows:
            return _resized(self.algorithm, state, max(shrunk(rows, state.mixture.dim), self.fewest_rows))
        return state


def check_first(infos: dict[str, np.ndarray], advice: str) -> None:
    """Raise, with advice, if the target was nowhere finite in the first iteration."""
    asked, zeros, invalid = (int(infos[k][0]) for k in ("evaluations", "zeros", "invalid"))
    if zeros + invalid == asked:
        raise TargetError(
            f"The target is not finite anywhere in the start region: of {asked} samples {zeros} have log "
            f"density -inf and {invalid} NaN, +inf or a gradient that is not finite. {advice}, or check "
            "the function.",
            asked,
        )
