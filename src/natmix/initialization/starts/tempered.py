"""Start "tempered": Gaussians for points that sequential Monte Carlo brings from the initial region."""

from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Array

from natmix.initialization.clusters import clusters
from natmix.initialization.evaluator import Values
from natmix.initialization.starts.base import AbstractSearchStart, Found, Setting
from natmix.initialization.tempered import tempered
from natmix.mixture import Mixture

_MOST_CLUSTERS = 8
"""Gaussians for the points, if nobody says how many."""


class TemperedStart(AbstractSearchStart):
    """As many components as the user says, or as Schwarz's criterion chooses."""

    name: ClassVar[str] = "tempered"

    def search(self, setting: Setting, values: Values, prior: Mixture, key: Array) -> Found:
        seed = int(jax.random.bits(key))
        cloud = tempered(values, prior, seed, gradients=setting.target.has_gradient)
        if cloud is None:
            return Found(
                None, "No point of the initial region has a positive density; the region itself was taken."
            )
        found = clusters(cloud.x, setting.components or _MOST_CLUSTERS, np.random.default_rng(seed))
        note = ""
        if cloud.b < 1:
            note = (
                f"The tempered warm-up ended at {cloud.b:.2g} of its path, for want of evaluations or steps."
            )
        return Found(setting.mixture(found.weights, found.means, found.covariances), note)
