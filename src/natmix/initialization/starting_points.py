"""Points to climb from."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Float

from natmix.mixture import Mixture


def reached(region: Mixture, key: Array, n: int, reach: Sequence[float]) -> Float[np.ndarray, "n D"]:
    """Samples of a region made wider about its mean, by the factors in ``reach`` in turn."""
    centre = np.asarray(region.mean(), float)
    factors = np.resize(reach, n)[:, None]
    return centre + factors * (np.asarray(region.sample(n, key=key), float) - centre)
