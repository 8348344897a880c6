"""The interface of a library that evaluates Stan programs."""

import abc

import numpy as np
from jaxtyping import Float


class AbstractBackend(abc.ABC):
    """A compiled program with its data.

    Log densities hold all constants and the Jacobian of Stan's transformations.

    Attributes:
        dim: unconstrained numbers.
        coordinates: their names by Stan, as ``A.2.1``.
        names: of parameters, transformed parameters and generated quantities, in Stan's order.
        rejection: why the last rejected point was rejected; empty if none was.
        compile_seconds: that compiling took just now; 0 if the program had been compiled before.
    """

    dim: int
    coordinates: tuple[str, ...]
    names: tuple[str, ...]
    rejection: str = ""
    compile_seconds: float = 0.0

    @abc.abstractmethod
    def values(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """Log densities; -inf where the program rejects."""

    @abc.abstractmethod
    def with_gradients(
        self, x: Float[np.ndarray, "N D"]
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N D"]]:
        """Log densities and gradients; -inf and zeros where the program rejects."""

    @abc.abstractmethod
    def constrain(self, x: Float[np.ndarray, "N D"], seed: int) -> Float[np.ndarray, "N M"]:
        """All outputs; ``seed`` is for the random numbers of generated quantities."""
