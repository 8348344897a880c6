"""Mixtures without components of negligible weight."""

import jax
import numpy as np
import scipy

from natmix.kernels.transfer import on_device
from natmix.mixture.mixture import Mixture

NEGLIGIBLE_WEIGHT = 1e-6
"""Components below this weight are left out of a fit's mixture: mostly new ones that gained no weight yet."""


def without_negligible(mixture: Mixture) -> tuple[Mixture, int]:
    """The mixture without negligible components, and how many were left out."""
    log_weights = np.asarray(mixture.log_weights, dtype=np.float64)
    keep = usable_components(mixture) & (log_weights >= np.log(NEGLIGIBLE_WEIGHT))
    kept = log_weights[keep]
    left_out = int(np.sum(log_weights > -np.inf)) - int(keep.sum())
    normalised = kept - scipy.special.logsumexp(kept)
    components = jax.tree.map(lambda a: on_device(np.asarray(a)[keep]), mixture.components)
    return Mixture(on_device(normalised, mixture.dtype), components), left_out


def usable_components(mixture: Mixture) -> np.ndarray:
    """Which components are finite or absent."""
    log_weights = np.asarray(mixture.log_weights)
    finite = [
        np.isfinite(np.asarray(a)).reshape(len(log_weights), -1).all(1)
        for a in jax.tree.leaves(mixture.components)
    ]
    return (np.all(finite, axis=0) & (log_weights < np.inf)) | (log_weights == -np.inf)
