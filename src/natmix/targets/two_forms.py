"""A log density that is computed in another way where JAX cannot trace it."""

import abc
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from natmix.targets.host import HostTarget


class AbstractTwoForms(abc.ABC):
    """A function of a point for JAX, with a form for the host."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " D"]) -> Any:
        """The log density in JAX, or (log density, gradient)."""

    @abc.abstractmethod
    def on_host(self, x: Float[np.ndarray, " D"]) -> Any:
        """What the user's function returns for this point."""

    @abc.abstractmethod
    def host_target(self, *, batched: bool, returns_gradient: bool) -> HostTarget:
        """The target outside JAX, if `on_host` takes points in this form and returns this."""
