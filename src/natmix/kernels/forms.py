"""Tables of forms: every numeric operation has one, and the first form that applies is taken.

A row is a form and the condition under which it applies, a function of the plan and of the sizes of the
operation's arrays. It is read while a program is traced, never while it runs.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from natmix.kernels.gaussian_batch import GaussianBatch
from natmix.kernels.plan import Plan

F = TypeVar("F", bound=str)
P = ParamSpec("P")

Rows = tuple[tuple[F, Callable[P, bool]], ...]
PlanRows = tuple[tuple[F, Callable[[Plan], bool]], ...]
"""Of an operation for which the device alone decides."""
GaussianRows = tuple[tuple[F, Callable[[Plan, GaussianBatch, int], bool]], ...]
"""Of an operation on Gaussians and a number of samples."""


def first_applicable(table: Rows[F, P], *args: P.args, **kwargs: P.kwargs) -> F:
    """The form of the first row whose condition holds."""
    return next(form for form, applies in table if applies(*args, **kwargs))


def otherwise(*sizes: object) -> bool:
    """The condition of a table's last row."""
    return True
