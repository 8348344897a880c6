"""Start "pathfinder": the Gaussians that Pathfinder finds from the initial region."""

from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Array, Float

from natmix.initialization.evaluator import TargetEvaluator
from natmix.initialization.pathfinder import distinct_modes, pathfinder
from natmix.initialization.starts.base import AbstractSearchStart, Found, Setting
from natmix.mixture import Mixture

_PATHS = 8
_REACH = (1.0, 1.0, 3.0)
"""Starting points of L-BFGS runs are drawn from the region, made so many times as wide, in turn."""


class PathfinderStart(AbstractSearchStart):
    """As many components as the user says, or as modes are found."""

    name: ClassVar[str] = "pathfinder"
    needs_gradient: ClassVar[bool] = True

    def search(self, setting: Setting, evaluator: TargetEvaluator, prior: Mixture, key: Array) -> Found:
        starting_points = _starting_points(prior, key, max(_PATHS, setting.components or 1))
        gaussians = pathfinder(evaluator, starting_points, int(jax.random.bits(key)))
        found = distinct_modes(gaussians)[: setting.components]
        if not found:
            return Found(
                None,
                "Pathfinder found no Gaussian with a finite ELBO: the fit starts from the initial region.",
            )
        elbos = np.array([g.elbo for g in found])
        weights = np.maximum(np.exp(elbos - elbos.max()), 1e-3)
        means, covariances = (np.stack(a) for a in zip(*((g.mean, g.covariance) for g in found), strict=True))
        return Found(setting.mixture(weights / weights.sum(), means, covariances))


def _starting_points(region: Mixture, key: Array, n: int) -> Float[np.ndarray, "n D"]:
    """Samples of the region, made wider about its mean by the factors in `_REACH` in turn."""
    centre = np.asarray(region.mean(), float)
    factors = np.resize(_REACH, n)[:, None]
    return centre + factors * (np.asarray(region.sample(n, key=key), float) - centre)
