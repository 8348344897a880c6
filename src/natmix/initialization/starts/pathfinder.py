"""Start "pathfinder": the Gaussians that Pathfinder finds from the initial region."""

from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Array

from natmix.initialization.evaluator import Values
from natmix.initialization.pathfinder import different, pathfinder
from natmix.initialization.starting_points import reached
from natmix.initialization.starts.base import AbstractSearchStart, Found, Setting
from natmix.mixture import Mixture

_PATHS = 8
_REACH = (1.0, 1.0, 3.0)
"""Starting points of the L-BFGS runs, in turn: how many times as wide as the region."""


class PathfinderStart(AbstractSearchStart):
    """As many components as the user says, or as modes are found."""

    name: ClassVar[str] = "pathfinder"
    needs_gradient: ClassVar[bool] = True

    def search(self, setting: Setting, values: Values, prior: Mixture, key: Array) -> Found:
        x0 = reached(prior, key, max(_PATHS, setting.components or 1), _REACH)
        paths = different(pathfinder(values, x0, int(jax.random.bits(key))))[: setting.components]
        if not paths:
            return Found(
                None,
                "No L-BFGS run found a Gaussian with a finite ELBO; the initial region itself was taken.",
            )
        elbos = np.array([p.elbo for p in paths])
        weights = np.maximum(np.exp(elbos - elbos.max()), 1e-3)
        means, covariances = (np.stack(a) for a in zip(*((p.mean, p.covariance) for p in paths), strict=True))
        return Found(setting.mixture(weights / weights.sum(), means, covariances))
