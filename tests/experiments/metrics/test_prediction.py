"""Predictions averaged over the posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_mixture
from scipy import stats

from natmix import Mixture
from natmix.experiments.metrics import posterior_mse, predictive_accuracy


def linear(x, features):
    return features @ x


def network(x, features):
    hidden = jnp.tanh(features @ x[:6].reshape(2, 3))
    return hidden @ x[6:9]


def test_mse_is_that_of_the_mean_prediction():
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(50, 2)), rng.normal(size=50)
    q = random_mixture(0, 3, 9)
    x = np.asarray(q.sample(300, key=4))
    outputs = np.array([np.tanh(features @ w[:6].reshape(2, 3)) @ w[6:9] for w in x])
    expected = np.mean((outputs.mean(axis=0) - targets) ** 2)
    assert posterior_mse(network, q, 4, features, targets, 300) == pytest.approx(expected, rel=1e-10)


def test_mse_of_a_linear_model_in_closed_form():
    """The mean prediction is features @ E[x]; its error shrinks with the samples."""
    rng = np.random.default_rng(1)
    features, targets = rng.normal(size=(200, 3)), rng.normal(size=200)
    q = random_mixture(1, 4, 3)
    exact = np.mean((features @ np.asarray(q.mean()) - targets) ** 2)
    assert posterior_mse(linear, q, 0, features, targets, 50_000) == pytest.approx(exact, rel=0.02)


def test_accuracy_of_averaged_probabilities():
    """Few samples say yes with certainty, most say no weakly: the mean decides, not the majority."""

    def probability(x, features):
        return jnp.where(x[0] > 1.0, 1.0, 0.45) + 0 * features

    q = Mixture.diagonal([1.0], [[0.0]], [[1.0]])  # 16% of the samples are above 1
    mean = 0.45 + 0.55 * stats.norm.sf(1.0)
    assert mean > 0.5
    labels = np.array([1.0, 1, 1, 0])
    assert predictive_accuracy(probability, q, 0, np.zeros(4), labels, 5000) == 0.75


def test_accuracy_in_brute_force_numpy():
    rng = np.random.default_rng(2)
    features, labels = rng.normal(size=(80, 3)), rng.integers(0, 2, 80)
    q = random_mixture(2, 2, 3)
    x = np.asarray(q.sample(200, key=5))
    mean = (1 / (1 + np.exp(-features @ x.T))).mean(axis=1)
    expected = np.mean((mean >= 0.5) == labels)
    found = predictive_accuracy(lambda x, f: jax.nn.sigmoid(f @ x), q, 5, features, labels, 200)
    assert found == pytest.approx(expected)


def test_blocks_of_samples_change_nothing(monkeypatch):
    rng = np.random.default_rng(3)
    features, targets = rng.normal(size=(50, 3)), rng.normal(size=50)
    q = random_mixture(3, 2, 3)
    whole = posterior_mse(linear, q, 0, features, targets, 300)
    monkeypatch.setattr("natmix.experiments.metrics.prediction.block_rows", lambda _: 64)

    def model(x, features):  # exp is not zero at the zeros that fill the last block
        return features @ x + jnp.exp(x[0])

    assert posterior_mse(lambda x, f: linear(x, f), q, 0, features, targets, 300) == pytest.approx(whole)
    x = np.asarray(q.sample(300, key=0))
    brute = np.mean(((x @ features.T + np.exp(x[:, :1])).mean(axis=0) - targets) ** 2)
    assert posterior_mse(model, q, 0, features, targets, 300) == pytest.approx(brute)


def test_bad_input():
    q = random_mixture(4, 1, 3)
    features = np.ones((5, 3))
    with pytest.raises(ValueError, match="one number per case"):
        posterior_mse(linear, q, 0, features, np.zeros(4))
    with pytest.raises(ValueError, match="0 or 1"):
        predictive_accuracy(linear, q, 0, features, np.full(5, 2))
    with pytest.raises(ValueError, match="at least one sample"):
        posterior_mse(linear, q, 0, features, np.zeros(5), samples=0)
