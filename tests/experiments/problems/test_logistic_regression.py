"""Logistic regression against scikit-learn, published values and properties of minibatches."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem_helpers import evaluate
from scipy import optimize, stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from natmix import Mixture
from natmix.experiments import metrics, problems
from natmix.experiments.problems import data
from natmix.experiments.problems.logistic_regression import log_sigmoid, probabilities
from natmix.experiments.problems.minibatch import minibatch_rows, start_and_stride

VECTORS = Path(__file__).parents[2] / "reference" / "problems"
DATA = {"breast_cancer": (data.breast_cancer, 227), "german_credit": (data.german_credit, 600)}
KEY = jax.random.key(0)


def features_and_labels(name):
    columns, labels = DATA[name][0]()
    return np.column_stack([np.ones(len(columns)), columns / np.sqrt(columns.var(axis=0))]), labels


def log_posterior(features, labels, x):
    """By scikit-learn and SciPy; the published sign is that of label 0."""
    p = 1 / (1 + np.exp(features @ x))
    return -log_loss(labels, p, normalize=False) + stats.norm.logpdf(x, scale=10).sum()


@pytest.mark.parametrize("name", DATA)
def test_log_density(name):
    features, labels = features_and_labels(name)
    x = np.random.default_rng(0).normal(0, 0.1, (5, features.shape[1]))
    ours = evaluate(problems.load(name).target, x, gradient=False).log_density
    np.testing.assert_allclose(ours, [log_posterior(features, labels, p) for p in x], rtol=1e-12)


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_published_values(name, dtype):
    table = np.loadtxt(VECTORS / f"{name}.csv", delimiter=",", skiprows=1)
    x, value, gradient = np.split(table, [(table.shape[1] - 1) // 2, (table.shape[1] + 1) // 2], axis=1)
    ours = evaluate(problems.load(name, dtype=dtype).target, x.astype(dtype))
    np.testing.assert_allclose(ours.log_density, value[:, 0], rtol=2e-6)
    scale = np.abs(gradient).max(axis=1, keepdims=True)
    np.testing.assert_allclose(ours.gradient / scale, gradient / scale, atol=5e-6)


@pytest.mark.parametrize("name", DATA)
def test_mode_and_held_out_accuracy(name):
    features, labels = features_and_labels(name)
    kept = len(labels) - DATA[name][1]
    # Its penalty |w|^2 / 2 / C is our prior of variance C = 100.
    model = LogisticRegression(C=100, fit_intercept=False, tol=1e-10, max_iter=10_000)
    model.fit(features[:kept], labels[:kept])
    problem = problems.load(f"{name}_testsplit")
    mode = -jnp.asarray(model.coef_)
    away = evaluate(problem.target, jnp.zeros_like(mode)).gradient
    assert jnp.abs(evaluate(problem.target, mode).gradient).max() < 1e-4 * jnp.abs(away).max()
    mixture = Mixture.diagonal([1.0], mode, jnp.full_like(mode, 1e-12))
    expected = model.score(features[kept:], labels[kept:])
    assert 0.6 < expected < 1
    assert problem.secondary["accuracy"](mixture, KEY) == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(
        probabilities(mode[0], jnp.asarray(features)), model.predict_proba(features)[:, 1], atol=1e-9
    )


@pytest.mark.parametrize("name", DATA)
def test_minibatches_are_unbiased(name):
    problem = problems.load(f"{name}_mb")
    x = np.random.default_rng(1).normal(0, 0.05, problem.dim)
    n = 20_000
    noisy = evaluate(problem.target, np.tile(x, (n, 1)))
    exact = evaluate(problem.reference, x[None])
    error = noisy.log_density.std() / np.sqrt(n)
    assert error < 2e-3 * abs(exact.log_density[0])  # a factor of (N - 1) / 64 or N / 63 would show
    assert abs(noisy.log_density.mean() - exact.log_density[0]) < 4 * error
    z = (noisy.gradient.mean(0) - exact.gradient[0]) / (noisy.gradient.std(0) / np.sqrt(n))
    assert jnp.abs(z).max() < 4.5


@pytest.mark.parametrize(("name", "tolerance"), [("breast_cancer", 0.03), ("german_credit", 0.1)])
def test_minibatches_vary_as_without_replacement(name, tolerance):
    problem = problems.load(f"{name}_mb")
    signed = np.asarray(problem.target.fn.signed)  # type: ignore[attr-defined]
    x = np.random.default_rng(2).normal(0, 0.05, problem.dim)
    N, n = len(signed), 20_000
    noisy = evaluate(problem.target, np.tile(x, (n, 1)), gradient=False).log_density
    terms = -np.logaddexp(0, -signed @ x)
    expected = N**2 / 64 * terms.var(ddof=1) * (1 - 64 / N)
    assert noisy.var() == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("rows", "size"), [(569, 64), (1000, 64), (2938, 128), (12, 12), (1, 1)])
def test_rows_of_a_minibatch(rows, size):
    points = 4000
    chosen = np.asarray(minibatch_rows(*start_and_stride(jax.random.key(3), points, rows), rows, size))
    assert chosen.shape == (points, size)
    assert chosen.min() >= 0
    assert chosen.max() < rows
    assert all(len(set(row)) == size for row in chosen.tolist())
    if rows > size:
        counts = np.bincount(chosen.ravel(), minlength=rows)
        share = size / rows
        spread = np.sqrt(points * share * (1 - share))
        assert np.abs(counts - points * share).max() < 5 * spread
        assert len({tuple(sorted(row)) for row in chosen.tolist()}) > 0.9 * points


def test_a_minibatch_of_all_rows_is_exact():
    problem = problems.load("breast_cancer_mb", minibatch=569)
    x = np.random.default_rng(3).normal(0, 0.1, (3, problem.dim))
    noisy, exact = (evaluate(t, x) for t in (problem.target, problem.reference))
    np.testing.assert_allclose(noisy.log_density, exact.log_density, rtol=1e-12)
    np.testing.assert_allclose(noisy.gradient, exact.gradient, rtol=1e-9)


@pytest.mark.parametrize("minibatch", [0, 570, 1.5, True])
def test_bad_minibatch(minibatch):
    with pytest.raises(ValueError, match="minibatch must be a whole number from 1 to 569"):
        problems.load("breast_cancer_mb", minibatch=minibatch)


def test_every_point_has_its_own_minibatch():
    problem = problems.load("german_credit_mb")
    x = jnp.full((600, problem.dim), 0.1)
    values = np.asarray(evaluate(problem.target, x, gradient=False).log_density)
    assert len(np.unique(values.round(6))) > 590
    again = evaluate(problem.target, x, seed=1, gradient=False).log_density
    assert np.mean(values == again) < 0.05


def test_log_sigmoid_far_out():
    z = jnp.asarray([-1e4, -50.0, -1.0, 0.0, 1.0, 50.0, 1e4])
    np.testing.assert_allclose(log_sigmoid(z), stats.logistic.logcdf(z), rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(jax.grad(log_sigmoid))(z), stats.logistic.sf(z), rtol=1e-14)


@pytest.mark.parametrize("name", ["breast_cancer", "breast_cancer_mb", "german_credit", "german_credit_mb"])
def test_mmd_is_to_the_posterior_of_all_data(name, monkeypatch):
    problem = problems.load(name)
    monkeypatch.setattr(metrics, "mmd_to_reference", lambda reference, mixture, key: len(reference))
    assert problem.secondary["mmd"](None, KEY) == len(name.removesuffix("_mb"))


@pytest.mark.parametrize("name", ["german_credit", "german_credit_mb"])
def test_the_known_evidence_is_that_of_the_reference_target(name):
    """By importance sampling from a Gaussian fitted at the mode, widened: a second, independent estimate."""
    problem = problems.load(name, dtype=np.float64)

    def log_density(x):
        return problem.reference.evaluate(jax.random.key(0), x[None], 1, False).log_density[0]

    mode = optimize.minimize(
        lambda x: -float(log_density(x)),
        np.zeros(problem.dim),
        jac=lambda x: -np.asarray(jax.grad(log_density)(x)),
    ).x
    precision = -np.asarray(jax.hessian(log_density)(jnp.asarray(mode)))
    proposal = stats.multivariate_t(mode, np.linalg.inv(precision), df=8)
    x = proposal.rvs(60_000, random_state=0)
    log_p = problem.reference.evaluate(jax.random.key(0), jnp.asarray(x), len(x), False).log_density
    log_w = np.asarray(log_p) - proposal.logpdf(x)
    w = np.exp(log_w - log_w.max())
    estimate = log_w.max() + np.log(w.mean())
    error = w.std() / w.mean() / np.sqrt(len(w))
    assert error < 0.1
    assert abs(estimate - problem.log_evidence) < 4 * np.hypot(error, problem.log_evidence_se)
