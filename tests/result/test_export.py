"""Results in the hands of other libraries."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from quick_fits import LEAST
from scipy import stats

import natmix
from natmix import Mixture
from natmix.models import PytreeModel
from natmix.result.to_arviz import in_chains

jax.config.update("jax_enable_x64", True)

Y = np.array([0.3, 1.8, 2.2, -0.5, 1.1])


def model(y=None):
    mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("data", 5):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu + z + p[0], sigma), obs=y)


@pytest.fixture(scope="module")
def result():
    return natmix.fit(model, model_kwargs={"y": Y}, algorithm="semtron", max_iterations=60, progress=False)


def groups(data):
    return data.groups() if callable(data.groups) else data.children


@pytest.fixture(scope="module")
def arviz():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("arviz")


def test_arviz_gets_posterior_stats_and_data(result, arviz):
    data = result.to_arviz()
    posterior = data["posterior"]
    assert posterior["z"].shape == (4, 500, 5)
    assert list(posterior.data_vars) == ["mu", "sigma", "p", "z"]
    np.testing.assert_allclose(data["observed_data"]["y"], Y)
    weights = np.exp(np.asarray(data["sample_stats"]["log_weight"]))
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(np.asarray(data["sample_stats"]["lp"]).ravel(), result.draws.log_target)
    assert "posterior_predictive" not in groups(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = arviz.summary(data, var_names=["mu"])
    assert float(table.loc["mu", "mean"]) == pytest.approx(float(posterior["mu"].mean()), abs=0.01)
    assert float(table.loc["mu", "r_hat"]) == pytest.approx(1, abs=0.02)


@pytest.fixture(scope="module")
def full(result, arviz):
    return result.to_arviz(predictive=True, log_likelihood=True)


def test_arviz_gets_predictions_and_likelihoods(result, full):
    ahead = full["posterior_predictive"]["y"]
    assert ahead.dims == ("chain", "draw", "data")
    x = {name: np.asarray(v) for name, v in full["posterior"].data_vars.items()}
    mean = x["mu"][..., None] + x["z"] + x["p"][..., :1]
    density = stats.norm.logpdf(Y, mean, x["sigma"][..., None])
    np.testing.assert_allclose(full["log_likelihood"]["y"], density, rtol=1e-6)
    residual = (np.asarray(ahead) - mean) / x["sigma"][..., None]
    assert residual.std() == pytest.approx(1, abs=0.03)


PLOTS = (
    *("plot_trace", "plot_forest", "plot_pair", "plot_posterior", "plot_dist", "plot_rank", "plot_ess"),
    *("plot_ppc", "plot_ppc_dist"),
)


@pytest.mark.parametrize("name", PLOTS)
def test_plots_of_arviz(full, arviz, name):
    plt = pytest.importorskip("matplotlib.pyplot")
    plot = getattr(arviz, name, None)
    old = int(arviz.__version__.split(".")[0]) < 1
    if plot is None or (old and name == "plot_dist"):  # which takes arrays
        pytest.skip("Not in this ArviZ.")
    plt.switch_backend("Agg")
    some = {"var_names": ["mu", "sigma"]}
    if "ppc" in name:
        some = {"num_pp_samples" if old else "num_samples": 10}  # type: ignore[dict-item]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plot(full, **some)
    assert plt.get_fignums()
    plt.close("all")


def test_arviz_gets_as_many_draws_as_asked_for(result, arviz):
    few, many = result.to_arviz(draws=1000), result.to_arviz(draws=3000, log_likelihood=True)
    assert few["posterior"]["z"].shape == (4, 250, 5)
    assert many["posterior"]["z"].shape == (4, 750, 5)
    assert many["log_likelihood"]["y"].shape == (4, 750, 5)
    np.testing.assert_allclose(np.ravel(few["sample_stats"]["lp"]), result.draws.log_target[:1000])
    lp, x = np.ravel(many["sample_stats"]["lp"]), {}
    np.testing.assert_allclose(lp[:2000], result.draws.log_target)
    for name, value in many["posterior"].data_vars.items():
        x[name] = np.asarray(value).reshape(3000, *value.shape[2:])
    again = result.model.unconstrain(x)
    np.testing.assert_allclose(lp, jax.vmap(result.model.log_density)(again), rtol=1e-6)
    without = dataclasses.replace(result, draws=None)
    assert without.to_arviz(draws=40)["posterior"]["mu"].shape == (4, 10)
    with pytest.raises(ValueError, match="load it with its model"):
        dataclasses.replace(result, target=None).to_arviz(draws=3000)


def test_variables_are_in_the_order_of_the_model(arviz):
    def ordered(y=None):
        zeta = numpyro.sample("zeta", dist.Normal(0.0, 1.0))
        alpha = numpyro.sample("alpha", dist.Normal(0.0, 1.0))
        numpyro.deterministic("q", zeta + alpha)
        numpyro.deterministic("b", zeta - alpha)
        numpyro.sample("y", dist.Normal(alpha, 1.0), obs=y)

    fitted = natmix.fit(ordered, model_kwargs={"y": 0.3}, **LEAST)
    assert list(fitted.to_arviz()["posterior"].data_vars) == ["zeta", "alpha", "q", "b"]
    assert list(fitted.to_pandas(10).index) == ["zeta", "alpha", "q", "b"]
    position = {"zeta": 0.0, "alpha": {"y": np.zeros(2), "b": 0.0}}
    tree = natmix.fit(lambda p: -(p["zeta"] ** 2), position=position, **LEAST)
    assert list(tree.to_pandas(10).index) == ["zeta", "alpha/y[0]", "alpha/y[1]", "alpha/b"]


def test_draws_are_corrected_for_arviz(result, arviz):
    """One of two samples has twice the density that the mixture says."""
    sigma = result.model.constrain(result.draws.x)["sigma"]
    heavy = sigma > np.median(sigma)
    draws = dataclasses.replace(
        result.draws, log_target=result.draws.log_mixture + np.log(np.where(heavy, 2.0, 1.0))
    )
    data = dataclasses.replace(result, draws=draws).to_arviz(corrected=True)
    assert np.mean(np.asarray(data["posterior"]["sigma"]) > np.median(sigma)) == pytest.approx(
        2 / 3, abs=0.01
    )
    assert list(data["sample_stats"].data_vars) == ["lp", "log_mixture"]


@pytest.mark.parametrize(("number", "chains"), [(2000, 4), (9, 3), (10, 2), (7, 1)])
def test_every_draw_is_in_a_chain(number, chains):
    value = np.arange(2.0 * number).reshape(number, 2)
    assert in_chains(value).shape == (chains, number // chains, 2)
    np.testing.assert_array_equal(in_chains(value).reshape(number, 2), value)


def test_a_plain_fit_has_one_variable(arviz):
    plain = natmix.fit(lambda x: -0.5 * jnp.sum(x**2), 2, **LEAST)
    data = plain.to_arviz()
    assert data["posterior"]["x"].shape == (4, 500, 2)
    assert "observed_data" not in groups(data)
    for what in ("predictive", "log_likelihood"):
        with pytest.raises(ValueError, match=f"{what}=True needs a NumPyro"):
            plain.to_arviz(**{what: True})
    with pytest.raises(ValueError, match="draws=2000"):
        dataclasses.replace(plain, draws=None).to_arviz()
    with pytest.raises(ValueError, match="needs a NumPyro model, and this is the fit of a function"):
        plain.to_numpyro_guide()


def test_variables_within_variables_have_names_that_can_be_stored(arviz):
    model = PytreeModel(lambda p: -(p["a"]["b"] ** 2), {"a": {"b": 0.0}})
    data = natmix.fit(model, **LEAST).to_arviz()
    assert list(data["posterior"].data_vars) == ["a.b"]


def test_pandas_has_a_row_for_every_entry(result):
    table = result.to_pandas(4000)
    assert list(table.index[:3]) == ["mu", "sigma", "p[0]"]
    assert len(table) == 1 + 1 + 3 + 5
    x = result.sample(4000)
    assert table.loc["sigma", "mean"] == pytest.approx(x["sigma"].mean())
    assert table.loc["p[2]", "95%"] == pytest.approx(np.quantile(x["p"][:, 2], 0.95))


def test_the_guide_has_the_fit_s_elbo(result):
    """NumPyro's own estimate of the ELBO with the mixture as a guide, Jacobians and all."""
    guide = result.to_numpyro_guide()
    loss = numpyro.infer.Trace_ELBO(num_particles=4000).loss(jax.random.key(0), {}, model, guide, y=Y)
    assert -float(loss) == pytest.approx(result.elbo.value, abs=0.1)
    draws = numpyro.infer.Predictive(guide, num_samples=3000, params={})(jax.random.key(1))
    assert float(draws["sigma"].min()) > 0
    np.testing.assert_allclose(draws["p"].sum(axis=1), 1, rtol=1e-6)
    assert float(draws["mu"].mean()) == pytest.approx(float(result.sample(3000)["mu"].mean()), abs=0.15)


def test_a_frozen_mixture_behaves_as_scipy_s():
    mean, covariance = np.array([1.0, -2]), np.array([[2.0, 0.3], [0.3, 1]])
    ours = Mixture.full([1.0], mean[None], covariance[None]).frozen()
    theirs = stats.multivariate_normal(mean, covariance)
    x = theirs.rvs(5, random_state=0)
    np.testing.assert_allclose(ours.logpdf(x), theirs.logpdf(x))
    np.testing.assert_allclose(ours.pdf(x[0]), theirs.pdf(x[0]))
    np.testing.assert_allclose(ours.mean, theirs.mean)
    np.testing.assert_allclose(ours.cov, theirs.cov)
    assert ours.rvs().shape == (2,)
    np.testing.assert_array_equal(ours.rvs(9, random_state=3), ours.rvs(9, random_state=3))
    assert ours.entropy() == pytest.approx(theirs.entropy(), abs=0.05)


def test_corner_plots_show_what_they_are_asked_for(result):
    pytest.importorskip("matplotlib").use("Agg")
    axes = result.plot(contours=False)
    n = result.mixture.dim
    assert axes.shape == (n, n)
    assert axes[n - 1, 0].get_xlabel() == result.model.coordinates[0]
    assert axes[0, n - 1] is None
    assert axes[1, 0].lines
    assert axes[1, 0].patches
    chosen = result.plot(dims=[3, 0], labels=["a", "b"], components=False)
    assert chosen[1, 0].get_xlabel() == "a"
    assert not chosen[1, 0].patches
    for wrong, words in (([0, 0], "different"), ([99], "between 0 and"), (list(range(21)), "1 to 20")):
        with pytest.raises(ValueError, match=words):
            result.plot(dims=wrong)
    for wrong in (1, [None], [0.5, 1]):  # type: ignore[assignment]
        with pytest.raises(ValueError, match="whole numbers"):
            result.plot(dims=wrong)
    with pytest.raises(ValueError, match="3 labels"):
        result.plot(dims=[0, 1], labels=["a", "b", "c"])


def test_axes_keep_the_names_of_plates(arviz):
    def schools(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.factor("penalty", -(mu**2))
        with numpyro.plate("school", 3, dim=-2), numpyro.plate("again", 2, dim=-1):
            z = numpyro.sample("z", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
            numpyro.deterministic("first", z[..., 0])
            numpyro.sample("y", dist.Normal(z[..., 1] + mu, 1.0), obs=y)

    result = natmix.fit(schools, model_args=(np.zeros((3, 2)),), **LEAST)
    data = result.to_arviz()
    assert data["posterior"]["z"].dims == ("chain", "draw", "school", "again", "z_dim_2")
    assert data["posterior"]["first"].dims == ("chain", "draw", "school", "again")
    assert data["posterior"]["mu"].dims == ("chain", "draw")
    assert data["observed_data"]["y"].dims == ("school", "again")
    assert list(data["observed_data"].data_vars) == ["y"]
    assert set(result.sample(2)) == {"mu", "z", "first"}
