"""What the kernels need of an iteration's samples, which are a `natmix.modules.records.Batch`."""

from typing import Protocol

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count


class Weighting(Protocol):
    """What importance weights depend on: part of an iteration's samples, or a `Background`."""

    @property
    def log_background(self) -> Float[Array, " N"]:
        """Log z(x)."""

    @property
    def valid(self) -> Bool[Array, " N"]:
        """Samples that have a weight."""

    @property
    def count(self) -> Count | None:
        """How many samples are real; None for all."""


class Background(eqx.Module):
    """A `Weighting` without the samples."""

    log_background: Float[Array, " N"]
    valid: Bool[Array, " N"]
    count: Count | None = None


class SampleArrays(Protocol):
    """An iteration's samples; the first ``count`` are real."""

    @property
    def x(self) -> Float[Array, "N D"]: ...

    @property
    def log_target(self) -> Float[Array, " N"]:
        """Log p~, finite everywhere."""

    @property
    def log_background(self) -> Float[Array, " N"]:
        """Log z(x)."""

    @property
    def log_components(self) -> Float[Array, "N K"]:
        """Log q(x|o), -inf where negligible at working precision."""

    @property
    def source(self) -> Int[Array, " N"]:
        """The slot of the component that drew a sample in this iteration, -1 for reused samples."""

    @property
    def valid(self) -> Bool[Array, " N"]:
        """Samples that have a weight."""

    @property
    def zero(self) -> Bool[Array, " N"]:
        """Valid samples at which the target's density is zero."""

    @property
    def count(self) -> Count: ...

    @property
    def own(self) -> Int[Array, "K n"] | None:
        """Indices of the samples that each component drew in this iteration, padded with -1; may be None."""
