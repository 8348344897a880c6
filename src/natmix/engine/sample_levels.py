"""From few samples to many: the state of a run for the same algorithm with other numbers of samples."""

import dataclasses

from natmix.engine.chunk_runner import ChunkRunner
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import quick_jit
from natmix.kernels.plan import using
from natmix.modules.state import State, placed_state

FLAT = "flat"
"""Why a run pauses to go on with more samples."""


def with_more_samples(runner: ChunkRunner, state: State, algorithm: GMMVI) -> tuple[ChunkRunner, State]:
    """A runner of ``algorithm``, and the state for it; old samples are kept if it reuses as many."""
    changed = ChunkRunner(algorithm, runner.target, runner.most_components, runner.shrink_every)
    with using(algorithm.plan(state)):
        return changed, _converted(runner.algorithm, changed.algorithm, state)


@quick_jit()
def _converted(before: GMMVI, after: GMMVI, state: State) -> State:
    old, new = before.sample_selector.reused_per_slot, after.sample_selector.reused_per_slot
    slots = state.mixture.num_components
    ring = state.sample_selector
    if ring is None or new < old or before.sample_selector.max_age != after.sample_selector.max_age:
        ring = after.sample_selector.init(state.mixture, after.ng_estimator.needs_gradient)
    elif new > old:
        ring = ring.resized(slots, slots, new)
    return placed_state(dataclasses.replace(state, sample_selector=ring))
