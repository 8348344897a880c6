"""A batch of states advanced at once, by `jax.vmap` of the step."""

import abc
import functools
import time
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from natmix.engine.batch_program import (
    BatchArguments,
    StateBatch,
    batch_chunk,
    batch_resized,
    some_of,
    stacked,
    state_of,
)
from natmix.engine.runner import CHUNK, AbstractRunner, Chunk, SlotUse, clipped, resized
from natmix.engine.stacking import Stacked
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import QuickJit
from natmix.kernels.threads import single_threaded_blas
from natmix.modules.state import State
from natmix.targets import AbstractTarget


class AbstractBatchRunner(AbstractRunner):
    """Advances a batch of states in step, all with the same capacity.

    The states that `advance_batch` returns lack their stored samples, which stay in arrays of the whole
    batch: `Chunk.full_state` returns them.
    """

    advice = "run them one after another"
    """What to do if the batch makes no progress, for the error."""
    chunk: ClassVar[QuickJit] = batch_chunk
    """The compiled program."""

    def __init__(
        self,
        algorithm: GMMVI,
        dim: int,
        runs: Stacked,
        most_components: int,
        shrink_every: int,
    ) -> None:
        super().__init__(algorithm, dim, most_components, shrink_every)
        self._runs = runs
        self._batch: StateBatch | None = None
        self._last: list[State] = []
        self._last_use: list[tuple[bool, int]] = []
        """Of the last states: whether they need room, and their components."""

    @abc.abstractmethod
    def _algorithm_of(self, state: State) -> GMMVI:
        """The algorithm that advances this state."""

    @abc.abstractmethod
    def _seated(self, states: Sequence[State], capacity: int) -> tuple[list[int], StateBatch]:
        """The places of these states, and the states of all places with this capacity."""

    def next_capacity(self, states: Sequence[State]) -> int:
        """The capacity that the next call of `advance_batch` would use for these states."""
        known = {id(state): use for state, use in zip(self._last, self._last_use, strict=True)}
        needs, present = zip(*(known.get(id(s)) or self._use_of(s) for s in states), strict=True)
        use = [SlotUse(s.mixture.num_components, need) for s, need in zip(states, needs, strict=True)]
        stored = states[0] if self._batch is None else self._batch.states
        may_shrink = stored.sample_selector is None
        return self._wanted_capacity(use, lambda: max(present), int(states[0].iteration), may_shrink)

    def _use_of(self, state: State) -> tuple[bool, int]:
        present = int(np.sum(np.asarray(state.mixture.log_weights) > -np.inf))
        full = present == state.mixture.num_components
        return full and bool(self._algorithm_of(state).needs_room(state)), present

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
        batch, ends, end = self.chunk(arguments, batch)
        self._batch, self._last = batch, list(ends)
        end = jax.device_get(end)
        self._last_use = list(zip(end.full.tolist(), end.present.tolist(), strict=True))
        n, enough = int(end.done), end.affordable
        if n == 0 and iterations > 0 and np.all(enough[places]):
            raise RuntimeError(f"The batch cannot go on with {capacity} slots for components; {self.advice}.")
        arrays = end.log.arrays(n)
        if n:
            self._compile_larger(
                batch.size,
                ends[0],
                int(arrays["components"][-1].max()),
                lambda larger: functools.partial(
                    self._compiled, batch_resized(self.algorithm, batch, larger)
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
        return state_of(batch, jnp.asarray(place))

    def _compiled(self, batch: StateBatch) -> StateBatch:
        """Compile the program by a chunk of no iterations; returns the states unchanged."""
        nothing = np.zeros(batch.size, np.int32)
        batch, *_ = self.chunk(self._arguments(0, nothing, nothing.astype(bool)), batch)
        return jax.block_until_ready(batch)

    def _arguments(self, iterations: int, budget: np.ndarray, active: np.ndarray) -> BatchArguments:
        return BatchArguments(
            self._runs,
            jnp.asarray(iterations, jnp.int32),
            jnp.asarray(budget, jnp.int32),
            jnp.asarray(active),
        )


class BatchRunner(AbstractBatchRunner):
    """Advances a batch of states in step: same algorithm, same iteration, targets of a kind.

    The capacity is that of the largest. A run that has ended keeps its place, and its results are ignored.
    Once half of the runs have ended, a program for the others is compiled.
    """

    advice = "run the seeds with --apart"

    def __init__(
        self,
        algorithm: GMMVI,
        targets: Sequence[AbstractTarget],
        most_components: int,
        shrink_every: int = CHUNK,
    ) -> None:
        self._places = list(targets)
        runs = self._stacked_runs(algorithm)
        super().__init__(algorithm, targets[0].dim, runs, most_components, shrink_every)

    def _stacked_runs(self, algorithm: GMMVI) -> Stacked:
        return Stacked.build([(algorithm, target) for target in self._places])

    def _algorithm_of(self, state: State) -> GMMVI:
        return self.algorithm

    def _seated(self, states: Sequence[State], capacity: int) -> tuple[list[int], StateBatch]:
        if self._batch is None:
            fitted = tuple(with_capacity(self.algorithm, s, capacity) for s in states)
            batch, places = stacked(fitted, True), None
        else:
            place = {id(s): p for p, s in enumerate(self._last)}
            batch, places = self._batch, [place[id(s)] for s in states]
            if 2 * len(places) <= batch.size:
                self._places = [self._places[p] for p in places]
                self._runs = self._stacked_runs(self.algorithm)
                batch, places = some_of(batch, jnp.asarray(places)), None
            if batch.capacity != capacity:
                batch = batch_resized(self.algorithm, batch, capacity)
        return list(range(batch.size)) if places is None else places, batch


def with_capacity(algorithm: GMMVI, state: State, capacity: int) -> State:
    """The state with this capacity."""
    return state if state.mixture.num_components == capacity else resized(algorithm, state, capacity)
