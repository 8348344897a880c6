"""A front end in one file (tests/support/table_model.py) is found by `fit`: registered, or by entry point."""

from importlib import metadata
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from table_model import Table, TableModel

import natmix
from natmix.models import (
    FRONT_ENDS,
    AbstractModel,
    Given,
    NumpyroModel,
    PymcModel,
    PytreeModel,
    StanModel,
    as_model,
    front_ends,
    register,
    unregister,
)
from natmix.models.front_ends import GROUP, installed

KNOTS = np.linspace(-1.0, 3.0, 41)
TABLE = Table(KNOTS, -0.5 * ((KNOTS - 1.5) / 0.4) ** 2 + 7.0)
LEAST: dict[str, Any] = {"max_iterations": 60, "elbo_samples": 500, "progress": False}


@pytest.fixture
def registered():
    yield register(TableModel)
    unregister(TableModel)


@pytest.fixture
def packages(monkeypatch):
    """Entry points that other packages would have, by name and value."""

    def set_points(**points):
        found = [metadata.EntryPoint(name, value, GROUP) for name, value in points.items()]
        monkeypatch.setattr(metadata, "entry_points", lambda *, group: found if group == GROUP else [])
        installed.cache_clear()

    yield set_points
    monkeypatch.undo()
    installed.cache_clear()


def check(result):
    assert isinstance(result.model, TableModel)
    assert result.settings["start"] == "pathfinder"
    log_z = np.log(np.trapezoid(np.exp(TABLE.log_density), KNOTS))
    assert result.elbo.value == pytest.approx(log_z, abs=0.05)
    x = result.sample(4000)["x"]
    assert x.mean() == pytest.approx(1.5, abs=0.05)
    assert "x " in result.summary()


def test_a_registered_front_end_is_found_by_fit(registered, tmp_path):
    result = natmix.fit(TABLE, **LEAST)
    check(result)
    result.save(tmp_path / "fit")
    alone = natmix.Result.load(tmp_path / "fit")
    assert alone.model.kind == "TableModel"
    assert alone.summary().splitlines()[1] == result.summary().splitlines()[1]
    with pytest.raises(ValueError, match="This needs the TableModel, which a file does not hold"):
        alone.sample(3)
    again = natmix.Result.load(tmp_path / "fit", TABLE)
    np.testing.assert_array_equal(again.sample(5)["x"], result.sample(5)["x"])
    assert set(result.sampler_start(2).by_name) == {"x"}


def test_what_a_model_cannot_do_gets_a_sentence(registered):
    model = as_model(TABLE)
    mixture = natmix.Mixture.full([1.0], [[0.0]], [[[1.0]]])
    for call, words in (
        (lambda: model.predict(0, {}, (), {}), "predict.. needs a NumPyro or PyMC model"),
        (lambda: model.log_likelihood(np.zeros((1, 1))), "log_likelihood needs a NumPyro, PyMC or Stan"),
        (lambda: model.unconstrain({"x": np.zeros(2)}), "A TableModel cannot turn variables by name"),
        (lambda: model.guide(mixture), "needs the NumPyro model that was fitted"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(ValueError, match="A table knows its data and variables: leave bounds out"):
        natmix.fit(TABLE, bounds=(0, 1))


def test_an_entry_point_is_found_by_fit(packages):
    packages(table="table_model:TableModel")
    check(natmix.fit(TABLE, **LEAST))
    assert front_ends() == (TableModel, *FRONT_ENDS)


def test_a_broken_entry_point_gives_one_warning_that_names_it(packages):
    packages(broken="no_such_package:Model", function="table_model:Table", table="table_model:TableModel")
    with pytest.warns(UserWarning, match="cannot be used") as record:
        assert [type(as_model(TABLE)) for _ in range(2)] == [TableModel] * 2
    told = [str(warning.message) for warning in record]
    assert len(told) == 2
    assert "The model front end 'broken' (no_such_package:Model) cannot be used: ModuleNotFound" in told[0]
    assert "'function' (table_model:Table) cannot be used: TypeError: table_model:Table is not" in told[1]


def test_entry_points_are_not_loaded_at_import(tmp_path):
    import subprocess
    import sys

    code = (
        "from importlib import metadata\n"
        "metadata.entry_points = lambda **k: (_ for _ in ()).throw(SystemExit('asked')) "
        "if k.get('group') == 'natmix.models' else []\n"
        "import natmix, natmix.models\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


@pytest.mark.parametrize(
    ("given", "model"),
    [
        (Given("parameters { real x; } model { x ~ normal(0, 1); }"), StanModel),
        (Given(lambda: None), NumpyroModel),
        (Given(lambda x: 0.0, model_args=(1,)), NumpyroModel),
        (Given(lambda x: 0.0, position={"x": 0.0}), PytreeModel),
        (Given(lambda x: 0.0, 2, bounds=(0, 1)), PytreeModel),
        (Given(lambda x: 0.0, 2), None),
        (Given(natmix.JaxTarget(lambda x: jnp.sum(x), 2)), None),
        (Given(TABLE), None),
    ],
)
def test_who_recognises_what(given, model):
    first = next((m for m in FRONT_ENDS if m.recognises(given)), None)
    assert first is model


def test_a_simulator_may_come_with_a_front_end():
    from natmix.calibration import simulators

    class TableSimulator(simulators.AbstractSimulator):
        @classmethod
        def recognises(cls, request):
            return isinstance(request.model, Table)

        @classmethod
        def from_request(cls, request):
            request.leave_out_all("A table")
            return cls()

        def simulations(self, key, number):
            yield from ()

    nothing_else = (None,) * 5
    with pytest.raises(ValueError, match="Give a NumPyro or PyMC model, or a log density with simulate="):
        simulators.as_simulator(TABLE, *nothing_else)
    simulators.register(TableSimulator)
    try:
        assert isinstance(simulators.as_simulator(TABLE, *nothing_else), TableSimulator)
        with pytest.raises(ValueError, match="A table does not take observed: leave it out"):
            simulators.as_simulator(TABLE, None, None, ["y"], None, None)
    finally:
        simulators.SIMULATORS.remove(TableSimulator)


def test_the_abstract_model_recognises_nothing():
    assert not AbstractModel.recognises(Given(TABLE))
    with pytest.raises(NotImplementedError, match="is not a front end"):
        AbstractModel.from_given(Given(TABLE))
    assert PymcModel in front_ends()
