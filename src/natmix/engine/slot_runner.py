"""Runs with algorithms of their own in the slots of a batch, where others take their places."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from natmix.engine.batch_program import StateBatch, batch_resized, filled, trial_chunk, with_state
from natmix.engine.batch_runner import AbstractBatchRunner, with_capacity
from natmix.engine.runner import MANY
from natmix.engine.stacking import Stacked, obstacle
from natmix.gmmvi import GMMVI
from natmix.kernels.sharding import round_up_slots
from natmix.modules.state import State
from natmix.targets import AbstractTarget


class _Run(NamedTuple):
    algorithm: GMMVI
    target: AbstractTarget


class SlotRunner(AbstractBatchRunner):
    """Advances runs in step whose algorithms differ in numbers (`GMMVI.masked`), each from its own iteration.

    A new run can take the place of one that has ended, without compiling again if the batch has capacity for
    it. The capacity never shrinks. A free slot repeats some run, whose results are ignored.
    """

    advice = "give them fewer slots"
    chunk = trial_chunk

    def __init__(self, slots: int, algorithm: GMMVI, target: AbstractTarget, most_components: int) -> None:
        """Prepare it.

        Args:
            slots: runs at once.
            algorithm: of the first run.
            target: of the first run.
            most_components: that it may get.
        """
        self._shared_target = True
        self._places = [_Run(algorithm, target)] * slots
        self._waiting: dict[int, State] = {}
        super().__init__(algorithm, target.dim, self._stacked_runs(), most_components, MANY)

    @property
    def capacity(self) -> int:
        """Slots for components of the present batch, 0 before the first."""
        return 0 if self._batch is None else self._batch.capacity

    def put(
        self, place: int, algorithm: GMMVI, target: AbstractTarget, state: State, most_components: int
    ) -> None:
        """Let a run that starts from ``state`` have this slot from the next chunk on."""
        run = _Run(algorithm, target)
        reason = obstacle([self._places[place].target, target])
        if reason is not None:
            raise ValueError(f"These runs cannot share a batch: {reason}.")
        self._places[place] = run
        if not self._runs.can_take(run):
            self._shared_target = False
            self._runs = self._stacked_runs()
        self._runs = self._runs.put(place, run)
        self._waiting[place] = state
        most = round_up_slots(most_components, self.algorithm.mesh)
        self._most_capacity = max(self._most_capacity, most)

    def _stacked_runs(self) -> Stacked:
        """All algorithms' numbers are stacked; a target that all share is kept once."""
        algorithms, targets = zip(*self._places, strict=True)
        algorithm = Stacked.build(algorithms, share=False)
        target = Stacked.build(targets, share=self._shared_target)
        return Stacked(_Run(algorithm.varying, target.varying), _Run(algorithm.common, target.common))

    def _algorithm_of(self, state: State) -> GMMVI:
        return self._places[self._places_of([state])[0]].algorithm

    def _places_of(self, states: Sequence[State]) -> list[int]:
        place = {id(s): p for p, s in enumerate(self._last)}
        place |= {id(s): p for p, s in self._waiting.items()}
        return [place[id(s)] for s in states]

    def _seated(self, states: Sequence[State], capacity: int) -> tuple[list[int], StateBatch]:
        places = self._places_of(states)
        fitted = {p: with_capacity(self.algorithm, s, capacity) for p, s in self._waiting.items()}
        if self._batch is None:
            batch = filled(fitted[places[0]], len(self._places))
        elif self._batch.capacity != capacity:
            batch = batch_resized(self.algorithm, self._batch, capacity)
        else:
            batch = self._batch
        for place, state in fitted.items():
            batch = with_state(batch, jnp.asarray(place, jnp.int32), state)
        self._waiting = {}
        return places, jax.block_until_ready(batch)
