"""What the runners of one state and of a batch of states share."""

import abc
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from natmix.array_types import Scalar
from natmix.engine.background_compilation import BackgroundCompilation
from natmix.engine.capacity import fewest_slots, grown, shrunk
from natmix.engine.memory import shortage
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import quick_jit
from natmix.kernels.plan import Plan, using
from natmix.kernels.sharding import round_up_slots
from natmix.mixture import Mixture
from natmix.mixture.padding import padded_components
from natmix.modules.changes import insert_components
from natmix.modules.state import State, placed_state
from natmix.targets import TargetError

CHUNK = 128
"""The most iterations of a chunk. Between two chunks the host has control."""

MANY = 2**31 - 1
"""The budget of evaluations where there is none."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some iterations of one run, and where they ended.

    Attributes:
        state: at their end; in a batch without its stored samples.
        infos: every field of `natmix.Info` as an array over the iterations.
        exhausted: whether there are no iterations because the next one might exceed the budget.
        full_state: gives the state with its stored samples, until the next chunk; None if ``state`` is that.
    """

    state: State
    infos: dict[str, np.ndarray]
    exhausted: bool
    full_state: Callable[[], State] | None = None

    def __len__(self) -> int:
        return len(self.infos["elbo"])


class SlotUse(NamedTuple):
    """How a state uses its capacity.

    Attributes:
        capacity: slots for components.
        needs_room: whether the next iteration may add a component and finds no free slot.
    """

    capacity: int
    needs_room: bool


class AbstractRunner(abc.ABC):
    """Advances states by compiled chunks, and counts the time spent compiling separately.

    One program serves every iteration with the same capacity (slots for components). The capacity grows
    (`natmix.engine.capacity.grown`) when a component is to be added and no slot is free. It shrinks when
    three quarters of the slots are empty and the number of iterations is a multiple of ``shrink_every``. This
    must not depend on the clock, because another capacity may change the rounding of sums.

    Attributes:
        algorithm: the algorithm.
        compile_seconds: spent tracing and compiling so far.
        most_components: that a state may get.
        shrink_every: iterations.
    """

    def __init__(self, algorithm: GMMVI, dim: int, most_components: int, shrink_every: int) -> None:
        self.algorithm = algorithm
        self.shrink_every = shrink_every
        self.compile_seconds = 0.0
        self.most_components = most_components
        self._dim, self._mesh = dim, algorithm.mesh
        self._most_capacity = round_up_slots(most_components, algorithm.mesh)
        self._fewest_capacity = round_up_slots(fewest_slots(dim), algorithm.mesh)
        self._warm: set[tuple[int, int]] = set()
        """(states, capacity) of the programs that are compiled."""
        self._background = BackgroundCompilation()

    @abc.abstractmethod
    def advance_batch(
        self, states: Sequence[State], iterations: int, budgets: Sequence[int | None]
    ) -> list[Chunk]:
        """At most ``iterations`` more steps of each state, within its budget of evaluations.

        The states are those last returned, less the ones whose run has ended.
        """

    def _plan(self, state: State) -> Plan:
        """How to compute with a state: `GMMVI.plan` by one of its arrays, for less than that costs."""
        return Plan.of(state.mixture.log_weights).on(self._mesh)

    def _wanted_capacity(
        self, use: Sequence[SlotUse], present: Callable[[], int], iteration: int, may_shrink: bool
    ) -> int:
        """The capacity for the next chunk; ``present`` is the largest number of components."""
        capacity = max(each.capacity for each in use)
        full = [each.capacity for each in use if each.needs_room]
        if full:
            return max(capacity, self._larger(max(full)))
        may_shrink = may_shrink and iteration % self.shrink_every == 0 and capacity > self._fewest_capacity
        if may_shrink and 4 * present() <= capacity:
            return max(shrunk(capacity, self._dim), self._fewest_capacity)
        return capacity

    def with_components(self, state: State, new: Mixture, kept: float, prior: Mixture) -> State | None:
        """The state with more components (`insert_components`) and another prior; None without room."""
        present = int(np.sum(np.asarray(state.mixture.log_weights) > -np.inf))
        capacity = state.mixture.num_components
        while capacity < present + new.num_components:
            if capacity >= self._most_capacity:
                return None
            capacity = self._larger(capacity)
        if capacity > state.mixture.num_components and self._shortage(state, capacity):
            return None
        with using(self._plan(state)):
            if capacity > state.mixture.num_components:
                state = resized(self.algorithm, state, capacity)
            padded = Mixture(*padded_components(new.log_weights, new.components))
            changed = _inserted(state, padded, jnp.asarray(kept, state.mixture.dtype))
            return placed_state(dataclasses.replace(changed, prior=prior))

    def _shortage(self, state: State, capacity: int, runs: int = 1) -> str | None:
        """Why there is no memory for so many slots; None if there is."""
        family = type(state.mixture.components)
        with using(self._plan(state)):
            return shortage(self.algorithm, family, self._dim, state.mixture.dtype, capacity, runs)

    def _check_room(self, state: State, capacity: int, runs: int = 1) -> None:
        """Raise an error if there is no memory for so many slots."""
        why = self._shortage(state, capacity, runs)
        if why is not None:
            raise TargetError(f"The mixture cannot grow. {why}")

    def _larger(self, capacity: int) -> int:
        return min(grown(self.algorithm, capacity, self._dim), self._most_capacity)

    def _compile_larger(
        self, size: int, state: State, components: int, larger_program: Callable[[int], Callable[[], object]]
    ) -> None:
        """Compile the next larger program in the background if it is due and there is memory for it.

        ``larger_program`` of a capacity returns the function that compiles it.
        """
        capacity = state.mixture.num_components
        larger = self._larger(capacity)
        due = (size, larger) not in self._warm and self._background.due(capacity, components, larger)
        if due and not self._shortage(state, larger, size):
            with self._compiling():
                compile_program = larger_program(larger)
            self._background.start(larger, compile_program)

    @contextlib.contextmanager
    def _compiling(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.compile_seconds += time.perf_counter() - start


def clipped(budget: int | None) -> int:
    """A budget of evaluations as an int32."""
    return MANY if budget is None else max(min(budget, MANY), 0)


@quick_jit()
def _inserted(state: State, new: Mixture, kept: Scalar) -> State:
    return insert_components(state, new, kept)


@quick_jit()
def resized(algorithm: GMMVI, state: State, capacity: int) -> State:
    """The state with another capacity, by one program."""
    return algorithm.resized(state, capacity)
