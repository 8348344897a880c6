"""The gradient that a target brings with it is compared with its values before the first iteration."""

import jax
import numpy as np

from natmix.mixture import Mixture
from natmix.models import AbstractModel
from natmix.random_keys import run_key
from natmix.targets import AbstractTarget
from natmix.targets.gradient_check import check_gradient, evaluations_of_check

_SHARE = 0.1
"""The largest share of the fit's evaluations that the check may take; there is none if it would take more."""
_POINTS = 4


def checked_gradient(
    target: AbstractTarget, model: AbstractModel | None, region: Mixture, most: int | None, seed: int
) -> int:
    """The evaluations that the check took; it raises if the gradient is wrong.

    Args:
        target: that will be fitted.
        model: whose coordinates are named.
        region: where to check.
        most: evaluations of the whole fit.
        seed: of the fit.
    """
    cost = evaluations_of_check(target)
    if not cost or (most is not None and cost > _SHARE * most):
        return 0
    key = jax.random.fold_in(run_key(seed), 5)
    points = np.asarray(region.sample(_POINTS, key=key), float)
    scale = np.sqrt(np.diagonal(np.asarray(region.covariance(), float)))
    found = check_gradient(target, key, points, scale, region.dtype)
    found.require(() if model is None else tuple(model.coordinates))
    return found.evaluations
