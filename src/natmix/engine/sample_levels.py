"""From few samples to many: the state of a run for the same algorithm with other numbers of samples."""

import dataclasses

from natmix.engine.chunk_runner import ChunkRunner
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import quick_jit
from natmix.kernels.plan import using
from natmix.modules.state import State, placed_state

FLAT = "flat"
"""Why a run pauses to go on with more samples."""


def with_more_samples(before: ChunkRunner, after: ChunkRunner, state: State) -> State:
    """The state for another runner; old samples are kept if it reuses as many."""
    with using(after.algorithm.plan(state)):
        return _converted(before.algorithm, after.algorithm, state)


@quick_jit()
def _converted(before: GMMVI, after: GMMVI, state: State) -> State:
    old, new = before.sample_selector.reused_per_slot, after.sample_selector.reused_per_slot
    slots = state.mixture.num_components
    ring = state.sample_selector
    size = after.sample_selector.ring_size(slots)
    smaller = ring is not None and (new < old or size < ring.x.shape[0])
    if ring is None or smaller or before.sample_selector.max_age != after.sample_selector.max_age:
        ring = after.sample_selector.init(state.mixture, after.ng_estimator.needs_gradient)
    elif new > old:
        ring = ring.resized(slots, slots, size)
    return placed_state(dataclasses.replace(state, sample_selector=ring))
