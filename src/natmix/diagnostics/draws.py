"""Samples of a mixture with the target's log density at each."""

import dataclasses

import numpy as np
from jaxtyping import Float


@dataclasses.dataclass(frozen=True)
class Draws:
    """Samples of q, log p~ and log q there, all in float64.

    Attributes:
        x: the samples.
        log_target: -inf where the density is zero; NaN and +inf as they came.
        log_mixture: log q.
    """

    x: Float[np.ndarray, "N D"]
    log_target: Float[np.ndarray, " N"]
    log_mixture: Float[np.ndarray, " N"]

    def __len__(self) -> int:
        return len(self.log_target)

    @property
    def log_ratio(self) -> Float[np.ndarray, " N"]:
        """Log importance weights, log p~ - log q."""
        return self.log_target - self.log_mixture

    def joined(self, other: "Draws") -> "Draws":
        """Both, one after the other."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Draws(*(np.concatenate(pair) for pair in pairs))
