"""Many data sets, one model: nothing is compiled twice, and one bad data set does not lose the others."""

import concurrent.futures
import multiprocessing
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compilations

import natmix

OPTIONS: dict[str, Any] = {"max_iterations": 10, "verify": False, "progress": False}


def line(x, data):
    residual = (data["y"] - x[0] - x[1] * data["t"]) / data["noise"]
    return -0.5 * jnp.sum(residual**2) - 0.5 * jnp.sum(x**2)


def data_set(seed):
    rng = np.random.default_rng(seed)
    t = rng.normal(size=8)
    return {"t": t, "y": 1 + 2 * t + 0.3 * rng.normal(size=8), "noise": 0.3 + 0.1 * seed}


def posterior_mean(data):
    A = np.stack([np.ones(8), data["t"]], axis=1) / data["noise"]
    return np.linalg.solve(A.T @ A + np.eye(2), A.T @ data["y"] / data["noise"])


def fit_function(seed):
    return natmix.fit(line, 2, data=data_set(seed), **OPTIONS)


def fit_closure(seed):
    data = data_set(seed) | {"noise": 0.3}
    return natmix.fit(lambda x: line(x, data), 2, **OPTIONS)


def fit_position(seed):
    return natmix.fit(
        lambda p, d: line(jnp.stack([p["a"], p["b"]]), d),
        position={"a": 0.0, "b": 0.0},
        bounds={"a": (-20, 20)},
        data=data_set(seed),
        **OPTIONS,
    )


def fit_host(seed):
    def f(x, data):
        a, b = (float(v) for v in x)
        return -0.5 * float(np.sum((data["y"] - a - b * data["t"]) ** 2) / data["noise"] ** 2)

    return natmix.fit(f, 2, data=data_set(seed), **OPTIONS)


def numpyro_model(t, noise, y=None):
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions
    a = numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(a + b * t, noise), obs=y)


def fit_numpyro(seed):
    data = data_set(seed)
    args, kwargs = (data["t"], data["noise"]), {"y": data["y"]}
    return natmix.fit(numpyro_model, model_args=args, model_kwargs=kwargs, **OPTIONS)


def fit_pymc(seed):
    pm = pytest.importorskip("pymc")
    data = data_set(seed)
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a + b * pm.Data("t", data["t"]), 0.3, observed=data["y"])
    return natmix.fit(model, **OPTIONS)


FITS = (fit_function, fit_closure, fit_position, fit_host, fit_numpyro, fit_pymc)


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.__name__)
def test_a_fit_to_other_data_compiles_nothing(fit, quick_compilation):
    with compilations() as first:
        fit(0)
    with compilations() as second:
        fit(1)
    assert first
    assert second == []


def test_the_searches_of_the_verdict_compile_nothing_either(quick_compilation):
    options = OPTIONS | {"verify": True, "max_iterations": 30}
    fits = [natmix.fit(line, 2, data=data_set(0), **options)]
    with compilations() as second:
        fits.append(natmix.fit(line, 2, data=data_set(1), **options))
        assert fits[1].diagnosis is not None
    assert second == []
    for seed, result in enumerate(fits):
        np.testing.assert_allclose(result.mixture.mean(), posterior_mean(data_set(seed)), atol=0.1)


def test_a_list_of_results_with_a_table_of_verdicts():
    bad = data_set(1) | {"y": np.full(8, np.nan)}
    found = natmix.fit_many(line, [data_set(0), bad, data_set(2)], dim=2, seed=5, **OPTIONS)
    assert len(found) == 3
    assert found.seeds == [5, 6, 7]
    assert list(found.errors) == [1]
    assert found[1] is None
    for place in (0, 2):
        alone = natmix.fit(line, 2, data=data_set(place), seed=5 + place, **OPTIONS)
        np.testing.assert_array_equal(found[place].mixture.means, alone.mixture.means)
        assert found.verdicts[place] == alone.diagnosis.verdict
    table = str(found)
    assert repr(found) == table
    assert table.startswith("3 fits: ")
    assert "1 failed" in table
    assert type(found.errors[1]).__name__ in table
    assert table.count("\n") == 4
    frame = found.to_pandas()
    assert list(frame["verdict"]) == found.verdicts
    assert frame["evaluations"][0] == found[0].counts.evaluations


def test_numpyro_models_get_arguments_and_pymc_models_values_of_their_data():
    pm = pytest.importorskip("pymc")
    pytest.importorskip("numpyro")
    sets = [data_set(0), data_set(1)]
    sets = [s | {"noise": 0.3} for s in sets]
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        t, y = pm.Data("t", sets[0]["t"]), pm.Data("y", sets[0]["y"])
        pm.Normal("observed", a + b * t, 0.3, observed=y)
    options = OPTIONS | {"max_iterations": 60}
    by_name = natmix.fit_many(numpyro_model, sets, **options)
    by_place = natmix.fit_many(numpyro_model, [(s["t"], 0.3, s["y"]) for s in sets], **options)
    of_pymc = natmix.fit_many(model, [{"t": s["t"], "y": s["y"]} for s in sets], **options)
    for i, data in enumerate(sets):
        np.testing.assert_array_equal(by_name[i].mixture.means, by_place[i].mixture.means)
        np.testing.assert_allclose(by_name[i].mixture.mean(), posterior_mean(data), atol=0.05)
        np.testing.assert_allclose(of_pymc[i].mixture.mean(), posterior_mean(data), atol=0.05)
    np.testing.assert_array_equal(model["t"].get_value(), sets[0]["t"])


def test_an_executor_gives_the_same_results():
    sets = [data_set(0), data_set(1)]
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        there = natmix.fit_many(line, sets, dim=2, executor=executor, **OPTIONS)
    here = natmix.fit_many(line, sets, dim=2, **OPTIONS)
    for one, other in zip(there, here, strict=True):
        np.testing.assert_array_equal(one.mixture.means, other.mixture.means)


@pytest.mark.slow
def test_processes_give_the_same_results(monkeypatch):
    folders = os.pathsep.join([os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "support")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folders, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    sets = [data_set(0), data_set(1) | {"y": np.full(8, np.nan)}]
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn) as executor:
        there = natmix.fit_many(line, sets, dim=2, executor=executor, **OPTIONS)
        with pytest.raises(ValueError, match="travel to an executor by pickle"):
            natmix.fit_many(lambda x, d: line(x, d), sets, dim=2, executor=executor, **OPTIONS)
    here = natmix.fit_many(line, sets, dim=2, **OPTIONS)
    np.testing.assert_allclose(there[0].mixture.means, here[0].mixture.means, rtol=1e-6)
    assert list(there.errors) == [1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"datasets": {"t": 1}}, "datasets must be a list"),
        ({"datasets": [np.ones(3)]}, "a tuple of its arguments or a dictionary by name, got ndarray at 0"),
        ({"datasets": [{}], "dim": 2, "data": 3}, "gets the data as datasets: leave data out"),
        ({"datasets": [{}], "dim": 2, "seed": [1, 2]}, "one seed for each of 1 data sets, got 2"),
        ({"datasets": [{}], "dim": 2, "executor": 3}, "must be a concurrent.futures.Executor, got int"),
    ],
)
def test_bad_arguments(given, message):
    with pytest.raises(ValueError, match=message):
        natmix.fit_many(line, **given)


def test_a_pool_that_forks_is_refused():
    context = multiprocessing.get_context("fork")
    forking = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
    with forking as executor, pytest.raises(ValueError, match="forks hangs with JAX"):
        natmix.fit_many(line, [data_set(0)], dim=2, executor=executor)


def test_vmap_of_a_fit_names_fit_many():
    with pytest.raises(ValueError, match=r"natmix\.fit_many\(model, datasets\)"):
        jax.vmap(lambda y: natmix.fit(lambda x, y: -jnp.sum((x - y) ** 2), 1, data=y))(jnp.ones((3, 1)))


def test_data_of_a_model_are_not_given_as_data():
    target = natmix.JaxTarget(lambda x: -jnp.sum(x**2), 2)
    with pytest.raises(ValueError, match=r"data= is for a function f\(x, data\), got JaxTarget"):
        natmix.fit(target, data=np.ones(3))


def test_one_live_line_counts_the_fits(capsys):
    fits = natmix.fit_many(line, [data_set(1), {"y": 1}], dim=2, **{**OPTIONS, "progress": True})
    shown = capsys.readouterr().err
    assert "1 of 2 fits" in shown or "2 of 2 fits, 1 failed" in shown
    assert "iteration" not in shown
    assert len(fits.errors) == 1
