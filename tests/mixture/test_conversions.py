"""scikit-learn and NumPyro: the same distribution on both sides."""

import re
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from natmix import Mixture
from natmix.text.extras import install

jax.config.update("jax_enable_x64", True)

numpyro = pytest.importorskip("numpyro")

K, D = 3, 2
KINDS = pytest.mark.parametrize("kind", ["full", "diagonal"])
close = partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-8)


def mixture(kind: str, dtype: Any = np.float64, weights: Any = (1, 2, 3)) -> Mixture:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(K, D)).astype(dtype) * 3
    if kind == "diagonal":
        return Mixture.diagonal(weights, means, rng.uniform(0.1, 2, (K, D)))
    A = rng.normal(size=(K, D, D))
    return Mixture.full(weights, means, A @ np.swapaxes(A, 1, 2) + 0.2 * np.eye(D))


def points(n: int = 40) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, D)) * 3


# scikit-learn ---------------------------------------------------------------------------------------


@KINDS
def test_to_sklearn_gives_a_usable_model(kind: str) -> None:
    q, x = mixture(kind), points()
    model = q.to_sklearn()
    close(model.score_samples(x), q.log_prob(x))
    close(model.predict_proba(x), q.responsibilities(x))
    np.testing.assert_array_equal(model.predict(x), np.argmax(q.responsibilities(x), axis=1))
    assert np.isfinite([model.score(x), model.bic(x), model.aic(x)]).all()
    samples, labels = model.sample(20_000)
    np.testing.assert_allclose(samples.mean(0), q.mean(), atol=0.1)
    np.testing.assert_allclose(np.bincount(labels) / 20_000, q.weights, atol=0.02)
    assert model.converged_
    assert (model.n_iter_, model.n_features_in_, model.n_components) == (0, D, K)


@KINDS
def test_to_sklearn_sets_what_a_fit_would(kind: str) -> None:
    q = mixture(kind)
    model = q.to_sklearn()
    reference = GaussianMixture(n_components=K, covariance_type=model.covariance_type).fit(points())
    fitted = {name for name in vars(reference) if name.endswith("_")}
    assert fitted <= set(vars(model))
    for name in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"):
        assert getattr(model, name).shape == getattr(reference, name).shape
        assert getattr(model, name).dtype == np.float64
    if kind == "full":
        close(model.precisions_ @ model.covariances_, np.broadcast_to(np.eye(D), (K, D, D)))
        close(model.precisions_cholesky_, np.triu(model.precisions_cholesky_))


def test_float32_weights_can_be_sampled_by_sklearn() -> None:
    rng = np.random.default_rng(0)
    q = Mixture.diagonal(rng.uniform(size=50), np.zeros((50, D), np.float32), np.ones((50, D)))
    model = q.to_sklearn()
    assert model.weights_.sum() == pytest.approx(1, abs=1e-15)
    assert model.sample(100)[0].shape == (100, D)


@KINDS
def test_absent_components_stay_behind(kind: str) -> None:
    q, x = mixture(kind, weights=(1, 0, 3)), points()
    model = q.to_sklearn()
    assert model.n_components == 2
    close(model.score_samples(x), q.log_prob(x))


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_from_sklearn_takes_every_covariance_type(covariance_type: str) -> None:
    x = points()
    model = GaussianMixture(n_components=K, covariance_type=covariance_type, random_state=0).fit(x)
    q = Mixture.from_sklearn(model)
    assert q.covariance_family == ("diagonal" if covariance_type in ("diag", "spherical") else "full")
    assert q.dtype == jnp.float64
    close(q.log_prob(x), model.score_samples(x))
    close(q.to_sklearn().score_samples(x), model.score_samples(x))


def test_from_sklearn_takes_bayesian_mixtures() -> None:
    model = BayesianGaussianMixture(n_components=K, random_state=0).fit(points(20))
    q = Mixture.from_sklearn(model)
    close(q.weights, model.weights_)
    close(q.covariances, model.covariances_)


@KINDS
def test_there_and_back(kind: str) -> None:
    q, x = mixture(kind), points()
    again = Mixture.from_sklearn(q.to_sklearn())
    assert again.covariance_family == q.covariance_family
    close(again.log_prob(x), q.log_prob(x))


def test_from_sklearn_in_float32() -> None:
    q = mixture("full")
    assert Mixture.from_sklearn(q.to_sklearn(), dtype=jnp.float32).dtype == jnp.float32


def test_from_sklearn_refuses_what_it_cannot_use() -> None:
    with pytest.raises(ValueError, match="not fitted; call its fit method"):
        Mixture.from_sklearn(GaussianMixture(n_components=2))
    with pytest.raises(TypeError, match="Expected a scikit-learn GaussianMixture, got dict"):
        Mixture.from_sklearn({})


# NumPyro --------------------------------------------------------------------------------------------


@KINDS
def test_to_numpyro_is_the_same_distribution(kind: str) -> None:
    q, x = mixture(kind), points()
    d = q.to_numpyro()
    assert (d.batch_shape, d.event_shape) == ((), (D,))
    close(d.log_prob(x), q.log_prob(x))
    close(d.mean, q.mean())
    close(d.variance, q.std() ** 2)
    samples = d.sample(jax.random.key(0), (20_000,))
    np.testing.assert_allclose(samples.mean(0), q.mean(), atol=0.1)


@KINDS
def test_absent_components_in_numpyro(kind: str) -> None:
    q, x = mixture(kind, weights=(1, 0, 3)), points()
    d = q.to_numpyro()
    close(d.log_prob(x), q.log_prob(x))
    close(jax.jit(jax.grad(d.log_prob))(x[0]), jax.grad(q.log_prob)(x[0]))
    close(d.mean, q.mean())
    close(jax.jit(lambda q: q.to_numpyro().log_prob(x))(q), q.log_prob(x))


def test_a_numpyro_model_can_use_it_as_a_prior() -> None:
    prior = mixture("full").to_numpyro()

    def model() -> None:
        numpyro.sample("x", prior)

    value = jnp.array([0.3, -0.2])
    log_density = numpyro.infer.util.log_density(model, (), {}, {"x": value})[0]
    close(log_density, mixture("full").log_prob(value))


# Missing packages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "package"), [("to_sklearn", "sklearn"), ("to_numpyro", "numpyro")])
def test_a_missing_package_is_named(method: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=re.escape(install(package))):
        getattr(mixture("full"), method)()
