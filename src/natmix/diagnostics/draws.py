"""Samples of a mixture with the log densities of mixture and target at each."""

import dataclasses

import numpy as np
from jaxtyping import Float

from natmix.estimate import are_single, rounding_error

_FLOAT64 = np.dtype(np.float64)


@dataclasses.dataclass(frozen=True)
class EvaluatedDraws:
    """Samples of q with log p~ and log q, all stored in float64.

    Attributes:
        x: the samples.
        log_target: log p~; -inf where the density is zero, NaN and +inf as the target returned them.
        log_mixture: log q.
        dtype: the float type in which the log densities were computed.
    """

    x: Float[np.ndarray, "N D"]
    log_target: Float[np.ndarray, " N"]
    log_mixture: Float[np.ndarray, " N"]
    dtype: np.dtype = _FLOAT64

    def __len__(self) -> int:
        return len(self.log_target)

    @property
    def log_ratio(self) -> Float[np.ndarray, " N"]:
        """Log importance weights, log p~ - log q."""
        return self.log_target - self.log_mixture

    @property
    def resolution(self) -> float:
        """The rounding error of a log importance weight: no standard error of their mean is below it.

        Log densities that float32 represents exactly were computed in float32, whatever they are stored in.
        """
        return max(
            rounding_error(np.float32 if are_single(v) else self.dtype, v)
            for v in (self.log_target, self.log_mixture)
        )

    def joined(self, other: "EvaluatedDraws") -> "EvaluatedDraws":
        """These draws followed by the others."""
        return EvaluatedDraws(
            np.concatenate([self.x, other.x]),
            np.concatenate([self.log_target, other.log_target]),
            np.concatenate([self.log_mixture, other.log_mixture]),
            min(self.dtype, other.dtype, key=lambda t: t.itemsize),
        )
