"""natmix in the convention of pymc_extras, and the models of packages built on PyMC."""

import numpy as np
import pytest

import natmix
from natmix.integrations.pymc import fit
from natmix.models import PymcModel

pm = pytest.importorskip("pymc")
Y = np.array([0.3, 1.8, 2.2, -0.5, 1.1])


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, 2.0)
        pm.Normal("y", mu, 1.5, observed=Y)
    return model


def test_a_fit_returns_draws_for_arviz_and_what_is_known_of_them(model):
    with model:
        data = fit(draws=400, random_seed=1, progressbar=False, max_iterations=40)
    posterior = data["posterior"]
    precision = 1 / 4 + 5 / 1.5**2
    assert posterior["mu"].size == 400
    assert float(posterior["mu"].mean()) == pytest.approx((1 / 4 + Y.sum() / 1.5**2) / precision, abs=0.12)
    assert posterior.attrs["inference_library"] == "natmix"
    assert posterior.attrs["verdict"] in ("trust", "unsearched", "proposal", "undecided", "distrust")
    assert posterior.attrs["log_evidence_se"] >= 0
    np.testing.assert_array_equal(data["observed_data"]["y"], Y)


def test_arguments_that_cannot_be_used(model):
    with pytest.raises(ValueError, match='importance_sampling must be "psis" or None'):
        fit(model, importance_sampling="psir")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="context"):
        fit()


def test_a_bambi_model_is_its_pymc_model():
    bambi = pytest.importorskip("bambi")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"x": rng.normal(size=60)})
    table["y"] = 1 + 2 * table["x"] + 0.5 * rng.normal(size=60)
    model = bambi.Model("y ~ x", table)
    found = natmix.models.as_model(model)
    assert isinstance(found, PymcModel)
    assert set(found.latent) == {"Intercept", "x", "sigma"}
    result = natmix.fit(model, max_iterations=60, progress=False, verify=False)
    draws = result.sample(2000)
    assert draws["x"].mean() == pytest.approx(2, abs=0.3)
    with pytest.raises(ValueError, match=r"A Bambi model knows its data .* leave model_kwargs out"):
        natmix.fit(model, model_kwargs={"y": 1})
