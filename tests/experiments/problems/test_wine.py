"""The Bayesian neural network against scikit-learn's network; its split and its minibatches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem_helpers import evaluate
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from natmix import Mixture
from natmix.experiments import problems
from natmix.experiments.problems import data
from natmix.experiments.problems.wine import predict, split_rows

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def table():
    features, quality = data.white_wine()
    return np.column_stack([features, quality])


@pytest.fixture(scope="module")
def standardised(table):
    return StandardScaler().fit_transform(table[:, :-1])


@pytest.fixture(scope="module")
def problem():
    return problems.load("wine", seed=3)


def network(x):
    """scikit-learn's network with the weights x."""
    model = MLPRegressor(hidden_layer_sizes=(8, 8), activation="logistic")
    model.partial_fit(np.zeros((2, 11)), np.zeros(2))
    W1, b1, W2, b2, W3, b3 = np.split(np.asarray(x), np.cumsum([88, 8, 64, 8, 8]))
    model.coefs_ = [W1.reshape(11, 8), W2.reshape(8, 8), W3.reshape(8, 1)]
    model.intercepts_ = [b1, b2, b3]
    return model


def test_log_density_on_all_training_rows(problem, table, standardised):
    train = split_rows(table, 3).train
    points = np.random.default_rng(0).normal(size=(5, 177))
    ours = evaluate(problem.reference, points, gradient=False).log_density
    for x, value in zip(points, ours, strict=True):
        mse = np.mean((network(x).predict(standardised[train]) - table[train, -1]) ** 2)
        assert value == pytest.approx(-2938 * mse - 0.5 * x @ x, rel=1e-10)


def test_prediction(standardised):
    points = np.random.default_rng(1).normal(size=(4, 177))
    expected = [network(x).predict(standardised[:50]) for x in points]
    shared = jnp.asarray(standardised[:50])
    np.testing.assert_allclose(predict(jnp.asarray(points), shared), expected, rtol=1e-10)
    np.testing.assert_allclose(predict(jnp.asarray(points[0]), shared), expected[0], rtol=1e-10)
    own = jnp.stack([shared, 2 * shared, -shared, shared])
    np.testing.assert_allclose(predict(jnp.asarray(points), own)[0], expected[0], rtol=1e-10)
    np.testing.assert_allclose(
        predict(jnp.asarray(points), own)[1], network(points[1]).predict(2 * standardised[:50]), rtol=1e-10
    )


@pytest.mark.parametrize("seed", range(4))
def test_split(table, seed):
    split = split_rows(table, seed)
    assert [len(rows) for rows in split] == [2938, 980, 980]
    assert sorted(np.concatenate(split).tolist()) == list(range(4898))
    sides = [{tuple(row) for row in table[rows].tolist()} for rows in split]
    assert sum(len(side) for side in sides) == 3961  # as many as there are: no row is on two sides
    assert not np.array_equal(split.train, split_rows(table, seed + 1).train)
    np.testing.assert_array_equal(split.test, split_rows(table, seed).test)
    means = [table[rows, -1].mean() for rows in split]
    assert np.ptp(means) < 0.15


def test_identical_features_have_identical_quality(table):
    assert len(np.unique(table[:, :-1], axis=0)) == len(np.unique(table, axis=0)) == 3961


def test_minibatches_are_unbiased(problem):
    x = np.random.default_rng(2).normal(0, 0.5, 177)
    n = 8000
    noisy = evaluate(problem.target, np.tile(x, (n, 1)))
    exact = evaluate(problem.reference, x[None])
    error = noisy.log_density.std() / np.sqrt(n)
    assert error < 2e-3 * abs(exact.log_density[0])
    assert abs(noisy.log_density.mean() - exact.log_density[0]) < 4 * error
    z = (noisy.gradient.mean(0) - exact.gradient[0]) / (noisy.gradient.std(0) / np.sqrt(n))
    assert jnp.abs(z).max() < 4.5
    data = problem.reference.fn
    terms = np.asarray(predict(jnp.asarray(x), data.features) - data.quality) ** 2
    expected = 2938**2 / 128 * terms.var(ddof=1) * (1 - 128 / 2938)
    assert noisy.log_density.var() == pytest.approx(expected, rel=0.1)


def test_a_minibatch_of_all_rows_is_exact():
    problem = problems.load("wine", minibatch=2938)
    x = np.random.default_rng(3).normal(size=(2, 177))
    noisy, exact = (evaluate(t, x) for t in (problem.target, problem.reference))
    np.testing.assert_allclose(noisy.log_density, exact.log_density, rtol=1e-11)
    np.testing.assert_allclose(noisy.gradient, exact.gradient, rtol=1e-8, atol=1e-8)


def test_mse_on_the_test_rows(problem, table, standardised):
    x = np.random.default_rng(4).normal(size=177)
    mixture = Mixture.diagonal([1.0], x[None], np.full((1, 177), 1e-14))
    test = split_rows(table, 3).test
    expected = np.mean((network(x).predict(standardised[test]) - table[test, -1]) ** 2)
    assert problem.secondary["test_mse"](mixture, KEY) == pytest.approx(expected, rel=1e-4)
