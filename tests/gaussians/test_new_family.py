"""A covariance family in one file (tests/support/isotropic_family.py) runs a whole fit, saves and loads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from isotropic_family import IsotropicGaussians

import natmix
from natmix import Mixture
from natmix.gaussians import FAMILIES, FullGaussians, family_named, register

MEANS = np.array([[-4.0, 0.0, 0.0], [4.0, 2.0, 0.0]])
SCALES = np.array([0.5, 1.0])


def two_balls(x):
    """A mixture that the family can hold: two isotropic Gaussians of weights 1/4 and 3/4."""
    square = jnp.sum((x - MEANS) ** 2, axis=1) / SCALES**2
    return jax.nn.logsumexp(
        jnp.log(jnp.array([0.25, 0.75])) - 0.5 * square - 3 * jnp.log(SCALES) - 1.5 * np.log(2 * np.pi)
    )


def fit(**options):
    return natmix.fit(
        two_balls, 3, covariance="isotropic", init_scale=4.0, progress=False, **({"seed": 0} | options)
    )


@pytest.fixture(scope="module")
def result():
    return fit(max_iterations=400)


def test_a_whole_fit_finds_the_target(result):
    assert result.settings["covariance"] == "isotropic"
    assert isinstance(result.mixture.components, IsotropicGaussians)
    assert result.elbo.value == pytest.approx(0, abs=0.02)
    np.testing.assert_allclose(result.mixture.mean(), [2.0, 1.5, 0.0], atol=0.15)


def test_its_result_saves_loads_and_speaks(result, tmp_path):
    result.save(tmp_path / "fit.safetensors")
    again = natmix.Result.load(tmp_path / "fit.safetensors", two_balls)
    jax.tree.map(np.testing.assert_array_equal, again.mixture, result.mixture)
    assert again.start.covariance_family == "isotropic"
    assert "isotropic covariances" in result.summary()
    assert again.summary().splitlines()[:3] == result.summary().splitlines()[:3]
    assert "isotropic" in repr(result.mixture)
    assert result.diagnosis.k_hat < 0.7


@pytest.mark.parametrize("codename", ["semtrux", "zamtrux", "semirux", "zamirux", "semyrux", "zemyfun"])
def test_estimators_and_updaters_take_it(codename):
    short = fit(algorithm=codename, init_components=3, max_iterations=30, elbo_samples=500, verify=False)
    assert short.counts.failed_updates < 15
    assert isinstance(short.mixture.components, IsotropicGaussians)
    assert short.elbo.value > -4


def test_the_mixture_has_everything_that_others_have(result, tmp_path):
    q = result.mixture.top(2)
    same = Mixture.full(q.weights, q.means, q.covariances)
    x = np.asarray(q.sample(50, key=1))
    close = np.testing.assert_allclose
    close(q.log_prob(x), same.log_prob(x), rtol=1e-6)
    close(q.marginal([2, 0]).log_prob(x[:, [2, 0]]), same.marginal([2, 0]).log_prob(x[:, [2, 0]]), rtol=1e-6)
    close(q.condition({1: 1.0}).means, same.condition({1: 1.0}).means, atol=1e-6)
    close(q.affine([2.0, -1.0, 0.5]).covariance(), same.affine([2.0, -1.0, 0.5]).covariance(), rtol=1e-6)
    close(q.product(np.zeros(3), 2.0)[1], same.product(np.zeros(3), 2.0)[1], rtol=1e-6)
    close(q.top(1).kl(same.top(1)).value, 0, atol=1e-6)
    close(q.quantile(0.3), same.quantile(0.3), rtol=1e-6)
    close(q.to_sklearn().score_samples(x), q.log_prob(x), rtol=1e-5)
    close(q.to_numpyro().log_prob(x), q.log_prob(x), rtol=1e-5)
    assert q.astype(np.float32).covariance_family == "isotropic"
    q.save(tmp_path / "q.safetensors")
    jax.tree.map(np.testing.assert_array_equal, Mixture.load(tmp_path / "q.safetensors"), q)


def test_a_file_of_a_family_that_is_not_there(result, tmp_path, monkeypatch):
    result.mixture.save(tmp_path / "q.safetensors")
    monkeypatch.delitem(FAMILIES, "isotropic")
    with pytest.raises(ValueError, match="the covariance family 'isotropic', which is not registered"):
        Mixture.load(tmp_path / "q.safetensors")


def test_an_initial_covariance_must_be_one_of_the_family():
    with pytest.raises(ValueError, match="off the diagonal, which covariance='isotropic' rules out"):
        natmix.fit(two_balls, 3, covariance="isotropic", init_covariance=np.eye(3) + 0.1)


def test_names():
    assert family_named("full") is FullGaussians
    assert register(IsotropicGaussians) is IsotropicGaussians
    with pytest.raises(ValueError, match="covariance must be 'full', 'diagonal' or 'isotropic', got 'round'"):
        natmix.fit(two_balls, 3, covariance="round")

    class Other(IsotropicGaussians):
        name = "full"

    with pytest.raises(ValueError, match="a covariance family 'full' already, FullGaussians: give Other"):
        register(Other)


@pytest.mark.parametrize("family", ["full", "diagonal", "isotropic"])
def test_a_run_of_the_experiments_takes_any_family(family):
    from natmix.experiments.problems import load

    mixture, prior = load("gmm2").start.mixture(jax.random.key(0), 3, jnp.float64, family)
    assert mixture.covariance_family == prior.covariance_family == family
    np.testing.assert_allclose(mixture.covariances[2], prior.covariances[0])
