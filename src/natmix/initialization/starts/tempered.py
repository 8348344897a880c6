"""Start "tempered": Gaussians for samples that tempering moves from the initial region to the target."""

from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Array

from natmix.initialization.clusters import cluster
from natmix.initialization.evaluator import TargetEvaluator
from natmix.initialization.starts.base import AbstractSearchStart, Found, Setting
from natmix.initialization.tempered import tempered_samples
from natmix.mixture import Mixture

_MAX_CLUSTERS = 8
"""Components for the samples, if the user does not say how many."""


class TemperedStart(AbstractSearchStart):
    """As many components as the user says, or as Schwarz's criterion chooses."""

    name: ClassVar[str] = "tempered"

    def search(self, setting: Setting, evaluator: TargetEvaluator, prior: Mixture, key: Array) -> Found:
        seed = int(jax.random.bits(key))
        samples = tempered_samples(evaluator, prior, seed, gradients=setting.target.has_gradient)
        if samples is None:
            return Found(
                None,
                "No sample of the initial region has a positive density: the fit starts from the region.",
            )
        found = cluster(samples.x, setting.components or _MAX_CLUSTERS, np.random.default_rng(seed))
        note = ""
        if samples.inverse_temperature < 1:
            note = (
                f"Tempering ended at inverse temperature {samples.inverse_temperature:.2g} instead of 1: its "
                "evaluations or steps were used up."
            )
        return Found(setting.mixture(found.weights, found.means, found.covariances), note)
