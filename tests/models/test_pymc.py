"""PyMC models, against closed forms and PyMC itself."""

import jax.numpy as jnp
import numpy as np
import pytest
from quick_fits import LEAST
from scipy import stats

import natmix
from natmix.models import Given, PymcModel
from natmix.result.bridge import draw_vectors
from natmix.result.inference_data import inference_data

pm = pytest.importorskip("pymc")
Y = np.array([0.3, 1.8, 2.2, -0.5, 1.1])


@pytest.fixture(scope="module")
def conjugate():
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, 2.0)
        pm.Deterministic("twice", 2 * mu)
        pm.Normal("y", mu, 1.5, observed=Y)
    return model


def test_a_conjugate_model_has_its_posterior_evidence_and_predictions(conjugate):
    result = natmix.fit(conjugate, max_iterations=60, progress=False)
    precision = 1 / 4 + 5 / 1.5**2
    covariance = 4 * np.ones((5, 5)) + 1.5**2 * np.eye(5)
    evidence = stats.multivariate_normal(np.ones(5), covariance).logpdf(Y)
    assert result.diagnosis.log_evidence.value == pytest.approx(evidence, abs=0.01)
    x = result.sample(20_000)
    assert set(x) == {"mu", "twice"}
    assert x["mu"].mean() == pytest.approx((1 / 4 + Y.sum() / 1.5**2) / precision, abs=0.02)
    np.testing.assert_allclose(x["twice"], 2 * x["mu"])
    np.testing.assert_allclose(result.model.observed["y"], Y)
    ahead = result.predict(500)
    assert ahead["y"].shape == (500, 5)
    assert ahead["y"].std() == pytest.approx(np.sqrt(1.5**2 + 1 / precision), rel=0.1)
    with pytest.raises(ValueError, match="set new data"):
        result.predict(5, 3)


def groups(by):
    """Three groups far from each other and from the prior's mean, which PyMC may take for changed."""
    y = np.array([-50.0, 0, 50])[:, None] + np.random.default_rng(0).normal(size=(3, 10))
    with pm.Model(coords={"group": list("abc"), "again": range(10)}) as model:
        width = pm.Data("width", np.full(3, 50.0)) if by == "data" else 50.0
        mu = pm.Normal("mu", 0, 10)
        theta = pm.Normal("theta", mu, width, **({"shape": 3} if by == "data" else {"dims": "group"}))
        pm.Deterministic("from_mu", theta - mu, **({} if by == "data" else {"dims": "group"}))
        pm.Normal("y", theta[:, None], 1.0, observed=y, dims=("group", "again") if by == "dims" else None)
    return model


@pytest.mark.parametrize("by", ["dims", "data"])
def test_predictions_keep_the_latent_variables_of_the_fit(by, caplog):
    """PyMC 5 would draw theta again from its prior, with a standard deviation of 50."""
    found = PymcModel(groups(by))
    x = np.random.default_rng(0).normal([0, -50, 0, 50], 0.1, size=(100, 4))
    values = found.constrain(x)
    np.testing.assert_allclose(values["from_mu"], x[:, 1:] - x[:, :1])
    with caplog.at_level("INFO"):
        ahead = found.predict(3, values, (), {})["y"]
    assert ahead.shape == (100, 3, 10)
    np.testing.assert_allclose(ahead.mean((0, 2)), [-50, 0, 50], atol=0.2)
    np.testing.assert_allclose((ahead - x[:, 1:, None]).std((0, 2)), 1, atol=0.1)
    assert not caplog.records
    np.testing.assert_array_equal(ahead, found.predict(3, values, (), {})["y"])
    assert not np.allclose(ahead, found.predict(4, values, (), {})["y"])


def test_predictions_at_new_inputs_and_for_several_variables():
    with pm.Model() as model:
        x = pm.Data("x", np.arange(3.0))
        slope = pm.Normal("slope", 0, 10)
        y = pm.Normal("y", slope * x, 0.01, observed=np.zeros(3), shape=x.shape)
        pm.Poisson("count", pm.math.exp(y[0]), observed=2)
    found = PymcModel(model)
    latent = {"slope": np.array([1.0, -2.0])}
    with model:
        pm.set_data({"x": np.array([10.0, 20])})
    ahead = found.predict(0, latent, (), {})
    np.testing.assert_allclose(ahead["y"], [[10, 20], [-20, -40]], atol=0.1)
    # Drawn given the new y, e^10 and e^-20 on average.
    assert ahead["count"][0] == pytest.approx(np.exp(ahead["y"][0, 0]), rel=0.05)
    assert ahead["count"][1] == 0
    with pytest.raises(ValueError, match="cannot predict from the samples of the fit"):
        found.predict(0, {"slope": np.zeros((2, 3))}, (), {})


def test_transformed_densities_are_those_of_pymc():
    with pm.Model() as model:
        s = pm.HalfNormal("s", 2.0)
        p = pm.Dirichlet("p", np.ones(3))
        pm.Uniform("u", 1.0, 4.0, shape=2)
        pm.Normal("y", p[0], s, observed=0.4)
    seen = PymcModel(model)
    assert seen.dim == 1 + 2 + 2
    log_density = model.compile_logp()
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = jnp.asarray(rng.normal(size=5))
        names = [v.name for v in model.value_vars]
        point = dict(zip(names, map(np.asarray, seen._one(x)), strict=True))
        assert float(seen.log_density(x)) == pytest.approx(float(log_density(point)), abs=1e-8)
    values = seen.constrain(rng.normal(size=(20, 5)))
    np.testing.assert_allclose(values["p"].sum(axis=1), 1)
    assert np.all((values["u"] > 1) & (values["u"] < 4))
    assert np.all(values["s"] > 0)


def test_models_that_cannot_be_fitted():
    with pm.Model() as discrete:
        z = pm.Bernoulli("z", 0.5)
        pm.Normal("y", z, 1.0, observed=0.3)
    with pytest.raises(ValueError, match="'z' is discrete"):
        natmix.fit(discrete)
    with pm.Model() as nothing:
        pm.Normal("y", 0.0, 1.0, observed=0.3)
    with pytest.raises(ValueError, match="no latent variable"):
        natmix.fit(nothing)
    assert not PymcModel.recognises(Given(lambda x: x))


def test_draws_by_name_are_unconstrained():
    with pm.Model() as model:
        low = pm.Normal("low")
        pm.Uniform("between", low, low + 2)
        pm.HalfNormal("positive", shape=2)
        pm.Dirichlet("shares", np.ones(3))
    found = PymcModel(model)
    x = np.random.default_rng(0).normal(size=(4, found.dim))
    np.testing.assert_allclose(found.unconstrain(found.constrain(x)), x, atol=1e-6)
    with pytest.raises(ValueError, match="do not have the model's variable 'positive'"):
        found.unconstrain({k: v for k, v in found.constrain(x).items() if k != "positive"})


def test_draws_of_pymc_s_sampler_are_taken_as_they_come():
    with pm.Model() as model:
        pm.Normal("mean", shape=2)
        pm.HalfNormal("scale")
    found = PymcModel(model)
    x = np.random.default_rng(0).normal(size=(2, 3, found.dim))
    values = {k: v.reshape(2, 3, *v.shape[1:]) for k, v in found.constrain(x.reshape(6, -1)).items()}
    data = inference_data({"posterior": values})
    for draws in (data, data["posterior"], values):
        np.testing.assert_allclose(draw_vectors(found, draws), x, atol=1e-6)


def test_data_that_can_be_exchanged_are_observed_too():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=pm.Data("data", Y))
    np.testing.assert_array_equal(PymcModel(model).observed["y"], Y)


def test_axes_keep_their_names_and_labels():
    pytest.importorskip("arviz")
    with pm.Model(coords={"school": ["a", "b", "c"], "time": [2001, 2002]}) as model:
        effect = pm.Normal("effect", pm.Data("prior", np.zeros(2), dims="time"), dims=("school", "time"))
        pm.Deterministic("mean", effect.mean(axis=1), dims="school")
        pm.Normal("other", shape=2)
        pm.Normal("y", effect, 1.0, observed=np.zeros((3, 2)), dims=("school", "time"))
    result = natmix.fit(model, **LEAST)
    assert list(result.to_pandas(9).index[[0, 5, 6, 8]]) == [
        "effect[a,2001]",
        "effect[c,2002]",
        "other[0]",
        "mean[a]",
    ]
    assert "effect[c,2002]" in result.model.coordinates
    assert "  effect[b,2001] " in result.summary()
    data = result.to_arviz(predictive=True, log_likelihood=True)
    for group in ("posterior_predictive", "log_likelihood"):
        assert data[group]["y"].dims == ("chain", "draw", "school", "time")
    np.testing.assert_allclose(
        data["log_likelihood"]["y"], stats.norm.logpdf(np.asarray(data["posterior"]["effect"]))
    )
    assert data["constant_data"]["prior"].dims == ("time",)
    assert data["posterior"]["effect"].dims == ("chain", "draw", "school", "time")
    assert data["posterior"]["mean"].dims == ("chain", "draw", "school")
    assert data["posterior"]["other"].dims == ("chain", "draw", "other_dim_0")
    assert list(data["posterior"]["effect"].coords["school"].values) == ["a", "b", "c"]
    assert list(data["observed_data"]["y"].coords["time"].values) == [2001, 2002]


def test_an_axis_and_a_variable_of_one_name():
    """PyMC 5 allows it, xarray does not."""
    pytest.importorskip("arviz")
    with pm.Model(coords={"school": ["a", "b"]}) as model:
        try:
            pm.Normal("school")
        except ValueError:
            pytest.skip("This PyMC does not allow it either.")
        pm.Normal("mu", dims="school")
    data = natmix.fit(model, **LEAST).to_arviz()
    assert data["posterior"]["mu"].dims == ("chain", "draw", "school_dim")


def test_other_arguments_are_refused(conjugate):
    with pytest.raises(ValueError, match="A PyMC model knows its data and variables: leave bounds out"):
        natmix.fit(conjugate, bounds=(0, 1))
