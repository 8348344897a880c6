"""The error of the mean prediction."""

from typing import Any

import jax.numpy as jnp
from numpy.typing import ArrayLike

from natmix.array_types import KeyLike
from natmix.experiments.metrics.prediction import Predict, mean_prediction
from natmix.mixture import Mixture


def posterior_mse(
    predict: Predict,
    mixture: Mixture,
    key: KeyLike,
    features: Any,
    targets: ArrayLike,
    samples: int = 2000,
) -> float:
    """MSE of the posterior-mean prediction, mean_n (E_q[f(x, features_n)] - targets_n)^2.

    Args:
        predict: ``predict(x, features)``, f for all N cases, x one vector of parameters [D].
        mixture: the approximate posterior q of x.
        key: for its samples.
        features: handed to ``predict``.
        targets: the N true values.
        samples: how many samples of q.
    """
    prediction, truth = mean_prediction(predict, mixture, key, features, targets, samples)
    return float(jnp.mean((prediction - truth) ** 2))
