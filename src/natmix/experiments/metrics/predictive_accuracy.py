"""The accuracy of Bayesian predictions."""

from typing import Any

import jax.numpy as jnp
from numpy.typing import ArrayLike

from natmix.array_types import KeyLike
from natmix.experiments.metrics.prediction import Predict, mean_prediction
from natmix.mixture import Mixture


def predictive_accuracy(
    probabilities: Predict,
    mixture: Mixture,
    key: KeyLike,
    features: Any,
    labels: ArrayLike,
    samples: int = 2000,
) -> float:
    """Share of cases n with [E_q[P(label_n = 1 | x)] >= 1/2] = label_n.

    Args:
        probabilities: ``probabilities(x, features)``, P(label = 1 | x) of all N cases, x one vector of
            parameters [D].
        mixture: the approximate posterior q of x.
        key: for its samples.
        features: handed to ``probabilities``.
        labels: the N true labels, 0 or 1.
        samples: how many samples of q.
    """
    mean, truth = mean_prediction(probabilities, mixture, key, features, labels, samples)
    if not bool(jnp.all((truth == 0) | (truth == 1))):
        raise ValueError("Labels must be 0 or 1.")
    return float(jnp.mean((mean >= 0.5) == (truth == 1)))
