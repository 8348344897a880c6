"""How long a fit may take."""

import dataclasses
from typing import Any

import numpy as np

ELBO_SAMPLES = 2000
"""For the final ELBO, if the user says nothing."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Iterations, evaluations and seconds, as `fit` takes them."""

    max_iterations: int
    max_evaluations: int | None
    max_seconds: float | None
    elbo_samples: int | None
    tolerance: float

    def __post_init__(self) -> None:
        for name, low in (("max_iterations", 1), ("max_evaluations", 1), ("elbo_samples", 2)):
            value = getattr(self, name)
            if value is None and name != "max_iterations":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
                raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}.")
            object.__setattr__(self, name, int(value))
        if self.max_seconds is not None and not (is_number(self.max_seconds) and self.max_seconds > 0):
            raise ValueError(f"max_seconds must be a positive number, got {self.max_seconds!r}.")
        if not (is_number(self.tolerance) and self.tolerance >= 0):
            raise ValueError(f"tolerance must be a number and not negative, got {self.tolerance!r}.")

    @property
    def reserve(self) -> int:
        """Evaluations set aside for the final ELBO."""
        if self.elbo_samples is not None:
            return self.elbo_samples
        share = ELBO_SAMPLES if self.max_evaluations is None else self.max_evaluations // 10
        return min(ELBO_SAMPLES, max(share, 1))


def is_number(value: Any) -> bool:
    """Whether it is a real number, and not a truth value."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
