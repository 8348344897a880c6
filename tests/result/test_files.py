"""Results in files, pickled and copied."""

import copy
import dataclasses
import pickle
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import quick_fits
from safetensors.numpy import load_file, save

import natmix
from natmix import Mixture, Result
from natmix.diagnostics.elbo import no_elbo

jax.config.update("jax_enable_x64", True)

Y = np.array([0.3, 1.8, 2.2, -0.5, 1.1])
SHORT: dict[str, Any] = {"max_iterations": 20, "progress": False, "elbo_samples": 300}
LEAST: dict[str, Any] = {**quick_fits.LEAST, **SHORT}
few_iterations = pytest.mark.filterwarnings("ignore:k-hat is")  # fits that had no time to become good


def bounded(x):
    return -0.5 * jnp.sum((x - 0.4) ** 2) / 0.1**2


def of_tree(p):
    return -0.5 * (p["a"] ** 2 + jnp.sum((p["b"][0] - 1) ** 2)) - p["b"][1]


def model(y=None):
    mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    numpyro.deterministic("twice", 2 * mu)
    numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


class Pair(NamedTuple):
    first: float
    second: float


@pytest.fixture(scope="module")
def vector():
    return natmix.fit(bounded, 2, bounds=(0, 1), **SHORT)


@pytest.fixture(scope="module")
def tree():
    position = {"b": [np.zeros(3), 2.0], "a": 0.0}
    return natmix.fit(of_tree, position=position, bounds={"b/1": (0, None)}, **LEAST)


@pytest.fixture(scope="module")
def numpyro_result():
    return natmix.fit(model, model_kwargs={"y": Y}, **LEAST)


def saved(result, folder):
    result.save(folder / "fit.safetensors")
    return Result.load(folder / "fit.safetensors")


def without_advice(text):
    """What a result without its model cannot do, it does not advise."""
    for advice in (
        r"judge by more samples, as in result\.diagnose\(samples=[\d_]+\)",
        r"load the .* evaluate more",
    ):
        text = re.sub(advice, "(advice)", text)
    lines = ("  result.diagnose(", "  Fits with other seeds", "USE IT AS A PROPOSAL")
    return [line for line in text.splitlines() if not line.startswith(lines)]


def assert_same(a, b):
    """Everything of a result but its code."""
    for left, right in ((a.mixture, b.mixture), (a.start, b.start)):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-15), left, right)
    assert a.mixture.dtype == b.mixture.dtype
    assert (a.elbo, a.counts, a.timings, a.stopped, a.notes) == (
        b.elbo,
        b.counts,
        b.timings,
        b.stopped,
        b.notes,
    )
    assert a.algorithm.settings() == b.algorithm.settings()
    assert a.settings == b.settings
    for name in a.trajectory:
        np.testing.assert_array_equal(a.trajectory[name], b.trajectory[name])
        assert a.trajectory[name].dtype == b.trajectory[name].dtype
    np.testing.assert_array_equal(a.draws.x, b.draws.x)
    np.testing.assert_array_equal(a.draws.log_ratio, b.draws.log_ratio)
    assert without_advice(a.summary()) == without_advice(b.summary())
    assert without_advice(str(a.diagnosis)) == without_advice(str(b.diagnosis))
    assert a.diagnosis.verdict == b.diagnosis.verdict


@few_iterations
def test_vectors_between_bounds(vector, tmp_path):
    again = saved(vector, tmp_path)
    assert_same(vector, again)
    x = again.sample(50, seed=3)
    np.testing.assert_array_equal(x, vector.sample(50, seed=3))
    assert np.all((x > 0) & (x < 1))
    for needs in (
        lambda: again.resample(10),
        lambda: again.diagnose(100),
        lambda: again.diagnose(search=1),
        lambda: again.bridge(x),
    ):
        with pytest.raises(ValueError, match=r"does not know its target.*Result\.load\(path, model=model\)"):
            needs()
    assert again.diagnose().verdict == vector.diagnosis.verdict
    whole = Result.load(tmp_path / "fit.safetensors", model=bounded)
    np.testing.assert_allclose(whole.resample(40, seed=1), vector.resample(40, seed=1))


def test_pytrees_keep_their_structure(tree, tmp_path):
    again = saved(tree, tmp_path)
    assert_same(tree, again)
    jax.tree.map(np.testing.assert_array_equal, again.sample(9), tree.sample(9))
    whole = Result.load(tmp_path / "fit.safetensors", model=of_tree)
    jax.tree.map(np.testing.assert_allclose, whole.resample(9), tree.resample(9))
    twice = saved(again, tmp_path)
    jax.tree.map(np.testing.assert_array_equal, twice.sample(9), tree.sample(9))


def test_positions_with_classes_of_the_user_s_are_dictionaries_without_them(tmp_path):
    result = natmix.fit(
        lambda p: -(p.first**2) - p.second, position=Pair(0.0, 1.0), bounds={"second": (0, 9)}, **LEAST
    )
    again = saved(result, tmp_path)
    assert set(again.sample(2)) == {"first", "second"}
    np.testing.assert_array_equal(again.sample(5)["second"], result.sample(5).second)


@few_iterations
def test_numpyro_models(numpyro_result, tmp_path):
    again = saved(numpyro_result, tmp_path)
    assert_same(numpyro_result, again)
    a, b = numpyro_result.to_arviz(), again.to_arviz()
    for name in ("mu", "sigma", "twice"):
        np.testing.assert_array_equal(a["posterior"][name], b["posterior"][name])
    np.testing.assert_array_equal(b["observed_data"]["y"], Y)
    for needs in (lambda: again.sample(3), lambda: again.predict(3), lambda: again.to_pandas()):
        with pytest.raises(ValueError, match=r"needs the NumpyroModel.*Result\.load\(path, model=model\)"):
            needs()
    with pytest.raises(ValueError, match=r"Result\.load"):
        again.to_numpyro_guide()
    file = tmp_path / "fit.safetensors"
    whole = Result.load(file, model, model_kwargs={"y": Y})
    np.testing.assert_allclose(whole.resample(9)["sigma"], numpyro_result.resample(9)["sigma"])
    assert_same(numpyro_result, saved(again, tmp_path))


def test_pymc_models(tmp_path):
    pm = pytest.importorskip("pymc")
    with pm.Model(coords={"school": ["a", "b", "c", "d", "e"]}) as schools:
        mu = pm.Normal("mu", dims="school")
        pm.Normal("y", mu, pm.HalfNormal("s"), observed=Y, dims="school")
    result = natmix.fit(schools, **LEAST)
    again = saved(result, tmp_path)
    assert_same(result, again)
    a, b = result.to_arviz()["posterior"]["mu"], again.to_arviz()["posterior"]["mu"]
    np.testing.assert_array_equal(a, b)
    assert a.dims == b.dims
    assert list(b.coords["school"].values) == ["a", "b", "c", "d", "e"]
    with pytest.raises(ValueError, match="needs the PymcModel"):
        again.sample(3)
    whole = Result.load(tmp_path / "fit.safetensors", model=schools)
    np.testing.assert_allclose(whole.sample(3)["s"], result.sample(3)["s"])


def test_pictures_of_a_loaded_result(tree, tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    axes = saved(tree, tmp_path).plot()
    assert axes[4, 0].get_xlabel() == tree.model.coordinates[0]
    assert axes.elbo is not None


def test_a_run_without_samples_and_one_with_infinite_elbo(tmp_path):
    plain = natmix.fit(lambda x: jnp.where(x[0] > 0, -x[0], -jnp.inf), 1, init_mean=1.0, **LEAST)
    assert plain.elbo.value == -np.inf
    assert saved(plain, tmp_path).elbo == plain.elbo
    broken_off = dataclasses.replace(plain, draws=None, elbo=no_elbo(7))
    again = saved(broken_off, tmp_path)
    assert again.draws is None
    assert np.isnan(again.elbo.value)
    assert again.elbo.samples == 7


def test_another_model_is_refused_or_warned_of(numpyro_result, vector, tmp_path):
    numpyro_result.save(tmp_path / "a")
    vector.save(tmp_path / "b")
    with pytest.warns(UserWarning, match="another log density"):
        Result.load(tmp_path / "a", model, model_kwargs={"y": Y + 1})
    with pytest.raises(ValueError, match="has the coordinates mu, sigma, the model given of a plain vector"):
        Result.load(tmp_path / "a", bounded)
    with pytest.raises(ValueError, match="give the model too"):
        Result.load(tmp_path / "a", model_kwargs={"y": Y})
    natmix.fit(bounded, 2, **LEAST).save(tmp_path / "c")
    with pytest.raises(ValueError, match="dimensions"):
        Result.load(tmp_path / "c", natmix.JaxTarget(bounded, 3))


def test_files_of_the_wrong_kind(vector, tmp_path):
    vector.mixture.save(tmp_path / "mixture")
    vector.save(tmp_path / "result")
    with pytest.raises(
        ValueError, match=r"holds a mixture, not a result: load it with natmix\.Mixture\.load"
    ):
        Result.load(tmp_path / "mixture")
    with pytest.raises(ValueError, match=r"holds a result, not a mixture"):
        Mixture.load(tmp_path / "result")
    arrays = load_file(tmp_path / "result")
    (tmp_path / "old").write_bytes(save(arrays, {"format": "natmix.Result", "version": "0"}))
    with pytest.raises(ValueError, match="format version 0"):
        Result.load(tmp_path / "old")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="not a natmix result"):
        Result.load(tmp_path / "text")


def test_a_result_in_single_precision(vector, tmp_path):
    vector.save(tmp_path / "fit")
    small = Result.load(tmp_path / "fit", dtype="float32")
    assert small.mixture.dtype == np.float32
    np.testing.assert_allclose(small.mixture.means, vector.mixture.means, rtol=1e-6)


@few_iterations
@pytest.mark.parametrize("which", ["vector", "tree", "numpyro_result"])
def test_pickles_and_copies(which, request):
    result = request.getfixturevalue(which)
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result), copy.copy(result)):
        assert_same(result, again)
        jax.tree.map(np.testing.assert_array_equal, again.sample(7), result.sample(7))
        jax.tree.map(np.testing.assert_allclose, again.resample(7), result.resample(7))
    copied = copy.deepcopy(result)
    copied.trajectory["elbo"][:] = 0
    assert np.any(result.trajectory["elbo"] != 0)


def test_a_target_without_a_name_cannot_be_pickled_but_copied():
    result = natmix.fit(lambda x: -jnp.sum(x**2), 1, **LEAST)
    with pytest.raises(pickle.PicklingError, match=r"result\.save\(path\)"):
        pickle.dumps(result)
    assert copy.deepcopy(result).target is result.target
    cloudpickle = pytest.importorskip("cloudpickle")
    assert pickle.loads(cloudpickle.dumps(result)).resample(3).shape == (3, 1)
