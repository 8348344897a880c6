"""The interface of a target."""

import abc
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import Count, PRNGKey
from natmix.modules.records import Evaluation

if TYPE_CHECKING:
    from natmix.result.result import Result


class TargetError(RuntimeError):
    """The target could not be evaluated.

    Attributes:
        result: the result of the fit up to then, if it had started.
        evaluations: the number of points in the call that failed.
    """

    result: "Result | None" = None

    def __init__(self, message: str, evaluations: int = 0) -> None:
        super().__init__(message)
        self.evaluations = evaluations


class AbstractTarget(eqx.Module):
    """An unnormalised log density on D-dimensional space."""

    if TYPE_CHECKING:  # an AbstractVar would be the first argument of every target for type checkers

        @property
        def dim(self) -> int:
            """D."""
    else:
        dim: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def has_gradient(self) -> bool:
        """Whether the target provides gradients."""

    @property
    @abc.abstractmethod
    def inside_jax(self) -> bool:
        """Whether `evaluate` can be traced; otherwise it is called on the host between steps."""

    @abc.abstractmethod
    def evaluate(
        self, key: PRNGKey, x: Float[Array, "Q D"], count: Count | int, needs_gradient: bool
    ) -> Evaluation:
        """The log density, and its gradient if needed, at the first ``count`` points."""


def check_dim(dim: Any) -> int:
    """The number of dimensions, checked."""
    if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)) or dim < 1:
        raise ValueError(f"dim must be a whole number of at least 1, got {dim!r}.")
    return int(dim)


def check_batch_size(size: Any) -> None:
    """Raise unless this is a number of points per call."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1, got {size!r}.")
