"""What a mode search is about: the mixture, the target, where to search, and within which limits."""

from typing import NamedTuple

import jax
import numpy as np

from natmix.array_types import PRNGKey
from natmix.initialization.evaluator import TargetEvaluator
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget


class SearchProblem(NamedTuple):
    """The arguments that every mode search has.

    Attributes:
        mixture: to compare with.
        target: whose modes are searched for.
        region: one Gaussian, the initial region.
        log_evidence: log Z of the target.
        key: of all random numbers.
        max_evaluations: of the target, never exceeded; None is no limit.
        max_seconds: after which the target is evaluated no more.
    """

    mixture: Mixture
    target: AbstractTarget
    region: Mixture
    log_evidence: float
    key: PRNGKey
    max_evaluations: int | None = None
    max_seconds: float = np.inf

    def evaluator(self) -> TargetEvaluator:
        """Evaluates the target within the limits, which start now."""
        return TargetEvaluator(
            self.target, self.key, self.mixture.dtype, self.max_evaluations, self.max_seconds
        )

    def rng(self) -> np.random.Generator:
        """Random numbers that follow from the key."""
        return np.random.default_rng(np.asarray(jax.random.key_data(self.key)))
