"""What the numeric operations need to know of an iteration's samples: `natmix.modules.records.Batch`."""

from typing import Protocol

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from natmix.array_types import Count


class Weighting(Protocol):
    """What the weights of samples follow from: an iteration's samples, or `Background`."""

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
    """A `Weighting` by itself."""

    log_background: Float[Array, " N"]
    valid: Bool[Array, " N"]
    count: Count | None = None


class SampleArrays(Protocol):
    """An iteration's samples with what is known about them; the first ``count`` are real."""

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
        """Log q(x|o), -inf where it is negligible."""

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
        """The samples that each component drew in this iteration, -1 for none; None if there is no table."""
