"""A mixture with the methods of SciPy's frozen distributions."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from natmix.checks import as_int
from natmix.mixture.mixture import Mixture


class FrozenMixture:
    """``pdf``, ``logpdf``, ``rvs``, ``mean``, ``cov`` and ``entropy`` of a mixture, on NumPy arrays."""

    def __init__(self, mixture: Mixture) -> None:
        self.mixture = mixture
        self.dim = mixture.dim

    @property
    def mean(self) -> Float[np.ndarray, " D"]:
        """The mean."""
        return np.asarray(self.mixture.mean())

    @property
    def cov(self) -> Float[np.ndarray, "D D"]:
        """The covariance."""
        return np.asarray(self.mixture.covariance())

    def logpdf(self, x: Any) -> Any:
        """Log density of points [..., D]."""
        return np.asarray(self.mixture.log_prob(x))[()]

    def pdf(self, x: Any) -> Any:
        """Density of points [..., D]."""
        return np.exp(self.logpdf(x))

    def rvs(self, size: int | tuple[int, ...] = 1, random_state: Any = None) -> Float[np.ndarray, "... D"]:
        """Samples [*size, D]; one point [D] for a size of one, as SciPy's."""
        rng = np.random.default_rng(random_state)
        shape = tuple(as_int(n, "size") for n in (size if isinstance(size, (tuple, list)) else (size,)))
        x = np.asarray(self.mixture.sample(math.prod(shape), key=int(rng.integers(2**31))))
        return x[0] if shape == (1,) else x.reshape(*shape, self.dim)

    def entropy(self) -> float:
        """An estimate from samples."""
        return self.mixture.entropy().value
