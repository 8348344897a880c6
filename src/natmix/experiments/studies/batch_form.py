"""How the trials of a batch run: the only file that decides it by the platform."""

from typing import NamedTuple

from natmix.kernels.plan import Plan, current
from natmix.modules.hyperparameters import Bounds


class BatchForm(NamedTuple):
    """How trials of one structure share a compiled program.

    Attributes:
        together: advance all at once, by `jax.vmap`; otherwise in turns, which only saves compilations.
        numbers: bounds of numbers that decide shapes: the fewer, the fewer programs, and the more a small
            trial computes in vain.
        slots: likewise, of slots for components at first.
    """

    together: bool
    numbers: Bounds
    slots: Bounds


_ON_CPU = BatchForm(together=False, numbers=Bounds(32, 2), slots=Bounds(32, 4))
"""Native kernels skip empty slots; samples below the bound cost time. A batch by `jax.vmap` would advance at
the pace of its largest trial."""
_ON_ACCELERATOR = BatchForm(together=True, numbers=Bounds(256, 4), slots=Bounds(32, 4))
"""An iteration of a small problem takes as long as its many operations take to start, whatever their size."""


def batch_form(plan: Plan | None = None) -> BatchForm:
    """The form for this plan, by default for the one in use."""
    return _ON_CPU if (plan or current()).on_cpu else _ON_ACCELERATOR
