"""Data simulated from NumPyro and PyMC models and from functions, with real fits."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from known_posterior import Known, log_density, simulate
from scipy import stats

from natmix.calibration import simulation_check

numpyro = pytest.importorskip("numpyro")
dist = numpyro.distributions

CALLS: list[Any] = []


def model(y=None):
    CALLS.append(1)
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.5))
    numpyro.deterministic("double", 2 * mu)
    numpyro.sample("y", dist.Normal(mu, sigma).expand([6]), obs=y)


def test_numpyro_models_are_simulated_and_fitted_without_compiling_again():
    from natmix.fit import fit as natmix_fit

    traced = []

    def fit(model, seed, **options):
        before = len(CALLS)
        result = natmix_fit(model, seed=seed, progress=False, **options)
        traced.append(len(CALLS) - before)
        return result

    found = simulation_check(
        model, model_args=(jnp.zeros(6),), fits=10, fit=fit, seed=1, max_evaluations=2500
    )
    assert set(found.names) == {"mu", "sigma", "double"}
    assert found.passed
    ranks = dict(zip(found.names, found.ranks.T, strict=True))
    np.testing.assert_array_equal(ranks["mu"], ranks["double"])
    assert np.isfinite(found.k_hats).all()
    assert max(traced[5:]) <= 6 < traced[0]  # looking at the target's kind, not compiling


def test_corrected_draws_are_checked_on_request():
    class Corrected(Known):
        def sample(self, n, *, seed):
            raise AssertionError("not these")

        def resample(self, n, *, seed):
            return Known.sample(self, n, seed=seed)

    def fit(model, seed):
        return Corrected(model.observed["y"])

    assert simulation_check(log_density, simulate=simulate, fits=20, fit=fit, corrected=True).fits == 20


def test_functions_with_bounds_are_fitted():
    def simulate(key):
        a, b = jax.random.split(key)
        p = jax.random.beta(a, 2.0, 2.0)
        return {"p": p}, jax.random.binomial(b, 10.0, p)

    def log_density(parameters, successes):
        p = parameters["p"]
        return (1 + successes) * jnp.log(p) + (11 - successes) * jnp.log1p(-p)

    found = simulation_check(
        log_density,
        simulate=simulate,
        bounds={"p": (0, 1)},
        fits=10,
        algorithm="semtron",
        max_evaluations=2000,
        elbo_samples=200,
    )
    assert found.names == ("p",)
    assert not found.failures
    assert found.passed
    exact = []
    for i, one in enumerate(jax.random.split(jax.random.key(0), 10)):
        truth, successes = simulate(one)
        exact.append(stats.beta(2 + int(successes), 12 - int(successes)).cdf(float(truth["p"])))
        assert found.pit_values[i, 0] == pytest.approx(exact[-1], abs=0.12)


def test_the_density_of_simulated_data_is_the_model_s():
    from natmix.calibration.simulators import NumpyroSimulator
    from natmix.models import NumpyroModel

    for simulated in NumpyroSimulator(model, (jnp.zeros(6),)).simulations(jax.random.key(3), 3):
        plain = NumpyroModel(model, (jnp.asarray(simulated.model.observed["y"]),))
        x = jnp.array([[0.3, -0.7], [1.0, 2.0]])
        for row in x:
            assert float(simulated.model.log_density(row)) == pytest.approx(float(plain.log_density(row)))
        for name, value in plain.constrain(x).items():
            np.testing.assert_allclose(simulated.model.constrain(x)[name], value)
        assert set(simulated.truth) == {"mu", "sigma", "double"}


def test_simulated_data_come_from_the_model():
    from natmix.calibration.simulators import NumpyroSimulator

    pairs = [
        (float(s.truth["mu"]), float(s.truth["sigma"]), s.model.observed["y"])
        for s in NumpyroSimulator(model, (jnp.zeros(6),)).simulations(jax.random.key(0), 300)
    ]
    mu = [p[0] for p in pairs]
    z = np.concatenate([(y - m) / s for m, s, y in pairs])
    assert stats.kstest(mu, "norm").pvalue > 1e-3
    assert stats.kstest(z, "norm").pvalue > 1e-3


def test_models_whose_data_cannot_be_drawn_get_a_sentence():
    def factor(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        numpyro.factor("penalty", -(mu**2))
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)

    def improper(y):
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)

    with pytest.raises(ValueError, match="a factor 'penalty'"):
        simulation_check(factor, model_args=(1.0,))
    with pytest.raises(ValueError, match="improper"):
        simulation_check(improper, model_args=(1.0,))
    with pytest.raises(ValueError, match="has no observed variable"):
        simulation_check(model)
    with pytest.raises(ValueError, match="no variable 'z'"):
        simulation_check(model, observed=["z"])


def test_pymc_models_are_simulated():
    pymc = pytest.importorskip("pymc")
    from natmix.calibration.simulators import PymcSimulator
    from natmix.models import PymcModel

    def build(y, k):
        with pymc.Model() as built:
            mu = pymc.Normal("mu", 0, 2)
            sigma = pymc.HalfNormal("sigma", 1.0)
            pymc.Normal("y", mu, sigma, observed=y)
            pymc.Poisson("k", pymc.math.exp(mu / 4), observed=k)
        return built

    x = jnp.array([0.3, -0.2])
    simulations = PymcSimulator(build(np.zeros(4), np.array([1, 2]))).simulations(jax.random.key(0), 2)
    for simulated in simulations:
        plain = PymcModel(build(simulated.model.observed["y"], simulated.model.observed["k"]))
        assert float(simulated.model.log_density(x)) == pytest.approx(float(plain.log_density(x)))
        assert set(simulated.truth) == {"mu", "sigma"}
    with pymc.Model() as empty:
        pymc.Normal("mu", 0, 2)
    with pytest.raises(ValueError, match="has no observed variable"):
        simulation_check(empty)


def test_pymc_data_with_gaps_give_no_false_alarm():
    """PyMC's joined variable holds the data of the model, not those simulated: it is no parameter."""
    pymc = pytest.importorskip("pymc")
    from natmix.calibration.simulators import PymcSimulator

    y = np.array([1.0, np.nan, 0.5, np.nan, 1.5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pymc.Model() as model:
            mu = pymc.Normal("mu", 0, 1)
            whole = pymc.Normal("y", mu, 1, observed=y)
            pymc.Deterministic("distance", whole.sum() - 5 * mu)

    class Exact:
        """The posterior in closed form: given n data, mu ~ N(sum / (n + 1), 1 / (n + 1))."""

        def __init__(self, model):
            self.model, self.data = model, model.observed["y_observed"]

        def sample(self, n, seed):
            rng = np.random.default_rng(seed)
            more = len(self.data) + 1
            mu = self.data.sum() / more + rng.normal(size=(n, 1)) / np.sqrt(more)
            return self.model.constrain(np.hstack([mu, mu + rng.normal(size=(n, 2))]))

    found = simulation_check(model, fits=60, draws=199, fit=lambda model, seed: Exact(model), progress=False)
    assert found.names == ("distance", "mu", "y_unobserved[0]", "y_unobserved[1]")
    assert found.passed, str(found)
    (one,) = PymcSimulator(model).simulations(jax.random.key(0), 1)
    x = np.array([[0.3, 1.0, -2.0]])
    right = one.model.observed["y_observed"].sum() + x[0, 1:].sum() - 5 * x[0, 0]
    assert one.model.constrain(x)["distance"][0] == pytest.approx(right)
