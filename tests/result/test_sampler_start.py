"""A mixture as the beginning of Markov chains, in the hands of the samplers themselves."""

import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS

from natmix import Mixture
from natmix.models import NumpyroModel, PymcModel, PytreeModel
from natmix.result.sampler_start import SamplerStart, sampler_start

jax.config.update("jax_enable_x64", True)

Y = np.array([0.3, 1.8, 2.2, -0.5, 1.1])
CENTRE = 1000.0
"""Where nobody begins who is not told."""


def model(y=None):
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    mu = numpyro.sample("mu", dist.Normal(CENTRE, 0.1).expand([2]))
    numpyro.deterministic("twice", 2 * mu)
    with numpyro.plate("data", 5):
        numpyro.sample("y", dist.Normal(mu[0] - CENTRE, sigma), obs=y)


def fitted(model, mixture):
    """As much of a result as a start needs."""
    return SimpleNamespace(model=model, mixture=mixture)


@pytest.fixture(scope="module")
def result():
    mixture = Mixture.full([1.0], [[CENTRE, CENTRE, 0.1]], np.diag([0.01, 0.01, 0.1])[None])
    return fitted(NumpyroModel(model, (), {"y": Y}), mixture)


def test_points_are_spread_over_the_mixture(result):
    start = sampler_start(result, 7, 0)
    assert start.positions.shape == (7, 3)
    np.testing.assert_allclose(start.inverse_mass_matrix, np.diag([0.01, 0.01, 0.1]))
    two = Mixture.full([0.5, 0.5], [[-9.0], [9.0]], np.ones((2, 1, 1)))
    far = sampler_start(fitted(None, two), 4, 0)
    np.testing.assert_array_equal(far.by_name["x"], far.positions)
    np.testing.assert_array_equal(far.initvals, far.positions)
    assert far.within == pytest.approx(1.0)
    assert far.inverse_mass_matrix == pytest.approx(82.0)


def test_nuts_in_numpyro_starts_there(result):
    """Without warm-up: only the points given are near 1000."""
    start = sampler_start(result, 2, 0)
    assert {name: value.shape for name, value in start.by_name.items()} == {"mu": (2, 2), "sigma": (2,)}
    kernel = NUTS(model, dense_mass=True, inverse_mass_matrix=start.inverse_mass_matrix, step_size=0.1)
    chains = {"num_warmup": 0, "num_samples": 20, "num_chains": 2, "chain_method": "sequential"}
    mcmc = MCMC(kernel, **chains, progress_bar=False)
    mcmc.run(jax.random.key(0), y=Y, init_params=start.by_name)
    draws = mcmc.get_samples()
    assert np.abs(draws["mu"] - CENTRE).max() < 1
    assert draws["sigma"].min() > 0


def test_nuts_in_blackjax_starts_there(result):
    blackjax = pytest.importorskip("blackjax")
    start = sampler_start(result, 2, 0)
    nuts = blackjax.nuts(result.model.log_density, 0.5, jnp.asarray(start.inverse_mass_matrix))

    def chain(key, position):
        def step(state, key):
            state, _ = nuts.step(key, state)
            return state, state.position

        return jax.lax.scan(step, nuts.init(position), jax.random.split(key, 20))[1]

    draws = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 2), jnp.asarray(start.positions))
    mu = result.model.constrain(draws.reshape(40, -1))["mu"]
    assert np.abs(mu - CENTRE).max() < 1
    assert len(np.unique(mu[:, 0])) > 30


def test_variables_of_each_chain(result):
    start = sampler_start(result, 3, 0)
    assert [set(one) for one in start.initvals] == [{"mu", "sigma"}] * 3
    np.testing.assert_allclose(start.initvals[1]["sigma"], np.exp(start.by_name["sigma"][1]))
    tree = PytreeModel(
        lambda p: -jnp.sum(p["a"] ** 2) - p["b"], {"a": np.zeros((2, 2)), "b": 1.0}, {"b": (0, None)}
    )
    x = np.arange(10.0).reshape(2, 5) / 10
    free = tree.free(x)
    np.testing.assert_array_equal(free["a"], x[:, :4].reshape(2, 2, 2))
    np.testing.assert_array_equal(free["b"], x[:, 4])
    other = SamplerStart(x, np.eye(5), np.eye(5), tree)
    np.testing.assert_allclose(other.initvals[1]["b"], np.exp(0.9))


def test_pymc_s_sampler_takes_them():
    pm = pytest.importorskip("pymc")
    with pm.Model() as schools:
        mu = pm.Normal("mu", CENTRE, 0.1, shape=2)
        pm.HalfNormal("scale")
        pm.Deterministic("twice", 2 * mu)
    mixture = Mixture.full([1.0], [[CENTRE, CENTRE, 0.1]], np.diag([0.01, 0.01, 0.1])[None])
    start = sampler_start(fitted(PymcModel(schools), mixture), 2, 0)
    assert set(start.by_name) == {"mu", "scale_log__"}
    with schools, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = pm.Metropolis(scaling=1e-6, tune=False)  # stays where it begins
        found = pm.sample(3, tune=0, chains=2, cores=1, step=step, initvals=start.initvals, progressbar=False)
    np.testing.assert_allclose(
        found["posterior"]["mu"][:, 0], [one["mu"] for one in start.initvals], atol=0.1
    )
    np.testing.assert_allclose(
        found["posterior"]["scale"][:, 0], [one["scale"] for one in start.initvals], rtol=0.1
    )
