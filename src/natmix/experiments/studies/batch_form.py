"""How the trials of a batch run: the only file that decides it by the platform."""

from typing import NamedTuple

import jax.numpy as jnp

from natmix.engine.capacity import initial_capacity
from natmix.engine.limits import Limits
from natmix.engine.memory import shortage
from natmix.experiments.runs.config import RunConfig
from natmix.gaussians import FAMILIES
from natmix.gmmvi import GMMVI
from natmix.kernels.plan import Plan, current
from natmix.modules.hyperparameters import ShapeBounds


class BatchForm(NamedTuple):
    """How trials share compiled programs.

    Attributes:
        together: advance all at once, by `jax.vmap`; otherwise in turns, which only saves compilations.
        numbers: bounds of numbers that decide shapes: the fewer, the fewer programs, and the more a small
            trial computes in vain. None: the shapes of a trial are its own.
        slots: likewise, of slots for components at first.
    """

    together: bool
    numbers: ShapeBounds | None
    slots: ShapeBounds | None

    def algorithm(self, config: RunConfig) -> GMMVI:
        """The algorithm of a trial's configuration, with masks below the bounds."""
        return config.algorithm if self.numbers is None else config.algorithm.masked(self.numbers)

    def first_slots(self, config: RunConfig) -> int:
        """Slots for components at first."""
        if self.slots is None:
            return initial_capacity(config.algorithm, config.components, len(config.start.mean))
        return self.slots.of(config.components)


SHORT = 5000
"""Iterations. On a CPU a small problem's program takes about as long to compile as so many take to run."""

_SHORT_ON_CPU = BatchForm(together=False, numbers=ShapeBounds(32, 2), slots=ShapeBounds(32, 4))
_LONG_ON_CPU = BatchForm(together=False, numbers=None, slots=None)
_ON_ACCELERATOR = BatchForm(together=True, numbers=ShapeBounds(256, 4), slots=ShapeBounds(32, 4))


_GROWTH_TO_COME = 4
"""By how much the slots of an algorithm that adds components may grow."""


def affordable_slots(slots: int, config: RunConfig, algorithm: GMMVI, form: BatchForm) -> int:
    """How many trials like this one there is memory for, at most ``slots`` and at least one."""
    dim, dtype, family = len(config.start.mean), jnp.dtype(config.dtype), FAMILIES[config.covariance]
    first = form.first_slots(config)
    most = algorithm.component_adaptation.most_components(config.components)
    components = min(max(first, most), _GROWTH_TO_COME * first)
    while slots > 1 and shortage(algorithm, family, dim, dtype, components, slots) is not None:
        slots //= 2
    return slots


def batch_form(limits: Limits, plan: Plan | None = None) -> BatchForm:
    """The form for trials with these limits under this plan, by default the one in use.

    On an accelerator an iteration of a small problem takes as long as its many operations take to start,
    whatever their size: trials advance at once. On a CPU such a batch would advance at the pace of its
    largest trial, so trials take turns; bounds above their numbers cost time and only pay for short trials.
    """
    if not (plan or current()).on_cpu:
        return _ON_ACCELERATOR
    short = limits.max_iterations is not None and limits.max_iterations <= SHORT
    return _SHORT_ON_CPU if short else _LONG_ON_CPU
