"""Whether seeds run together or apart."""

from collections.abc import Sequence
from typing import NamedTuple

from natmix.engine.batch_runner import BatchRunner
from natmix.engine.capacity import initial_capacity
from natmix.engine.memory import shortage
from natmix.experiments.runs.config import RunConfig
from natmix.gaussians import family_named
from natmix.gmmvi import GMMVI
from natmix.kernels.plan import current
from natmix.modules.state import State

_ACCELERATOR_SIZE = 2**26
"""The largest `step_size` for which seeds run together: an estimate, see benchmarks/speed/together.py."""


def step_size(algorithm: GMMVI, capacity: int, dim: int, seeds: int) -> int:
    """How much there is to do in an iteration of all seeds: capacity * samples * dimensions * seeds."""
    selector = algorithm.sample_selector
    return capacity * (selector.max_draws(capacity) + selector.ring_size(capacity)) * dim * seeds


def faster_together(algorithm: GMMVI, capacity: int, dim: int, seeds: int) -> bool:
    """Whether several seeds at once take less time per seed than one after another.

    On an accelerator, while an iteration is small its time goes into starting the many operations, which
    seeds that run together share; a large one keeps the device busy by itself, and together it only needs
    more memory. On a CPU together takes two thirds of the time for small problems and nearly all of it for
    large ones; but a limit of time is then one for all seeds, each of which does a fraction of the iterations
    that it would do alone, so nobody gets that unasked.
    """
    if seeds < 2 or current().on_cpu:
        return False
    return step_size(algorithm, capacity, dim, seeds) <= _ACCELERATOR_SIZE


class BatchChoice(NamedTuple):
    """How the seeds of a run are to run.

    Attributes:
        config: of the run.
        together: True or False as the user says, None for whatever is faster.
    """

    config: RunConfig
    together: bool | None

    def at_first(self, seeds: int) -> bool:
        """Whether that many new seeds may begin together."""
        config = self.config
        dim, family = len(config.start.mean), family_named(config.covariance)
        capacity = initial_capacity(config.algorithm, config.components, dim)
        if seeds < 2 or not self._allows(capacity, seeds):
            return False
        return bool(self.together) or not shortage(
            config.algorithm, family, dim, config.dtype, capacity, seeds
        )

    def still(self, runner: BatchRunner, states: Sequence[State]) -> bool:
        """Whether seeds that run together should go on so."""
        return self.together is True or self._allows(runner.next_capacity(states), len(states))

    def _allows(self, capacity: int, seeds: int) -> bool:
        if self.together is not None:
            return self.together
        config = self.config
        # A batch that has shrunk to its last seed has its program: it goes on.
        return faster_together(config.algorithm, capacity, len(config.start.mean), max(seeds, 2))
