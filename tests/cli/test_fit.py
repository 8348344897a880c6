"""``natmix fit``: users' own targets, their data, and the folder that it writes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from run_command import assert_one_sentence, natmix

from natmix import Result
from natmix.cli.fit_arguments import target_arguments
from natmix.cli.user_data import read_data
from natmix.cli.user_target import load_object

pytestmark = pytest.mark.usefixtures("quick_compilation")

QUICK = (
    "--algorithm",
    "semydux",
    "--start",
    "region",
    "--max-iterations",
    "3",
    "--quiet",
    "--elbo-samples",
    "60",
    "--no-verify",
)
CODE = """
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import natmix


def schools(J, sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("school", J):
        theta = numpyro.sample("theta", dist.Normal(mu, 1))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def _part(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal(0, 5)), 1), obs=y)


def in_parts(y):
    return _part(y)


def gaussian(x):
    return -0.5 * jnp.sum((x - 1.0) ** 2)


def line(x, y, t):
    return -0.5 * jnp.sum((y - x[0] - x[1] * t) ** 2)


def of_data(x, data):
    return -0.5 * jnp.sum((data["y"] - x[0]) ** 2)


def named(p):
    return -0.5 * (p["mu"] ** 2 + jnp.sum((p["theta"] - p["mu"]) ** 2)) - p["scale"]


def pymc_model(y):
    import pymc

    with pymc.Model() as model:
        pymc.Normal("y", pymc.Normal("mu", 0, 3), 1, observed=y)
    return model


def made(n):
    return natmix.JaxTarget(gaussian, n)


class Things:
    density = staticmethod(gaussian)


number = 3


def nothing(y):
    pass


def breaks(y):
    raise KeyError("gone")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a module of targets and files of data."""
    where = tmp_path_factory.mktemp("own")
    (where / "own_models.py").write_text(CODE)
    (where / "broken_model.py").write_text("x = 1\nnosuchname\n")
    data = {"J": 3, "sigma": [15, 10, 16], "y": [28.0, 8, -3]}
    (where / "schools.json").write_text(json.dumps(data))
    (where / "y.toml").write_text("y = [1.0, 2.0]\n")
    np.savez(where / "line.npz", y=np.array([1.0, 2, 3]), t=np.arange(3), n=np.array(3))
    return where


@pytest.fixture(autouse=True)
def beside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))


def arguments(name, data=None, dim=None, position=None, bounds=None):
    path = None if data is None else Path(data)
    return target_arguments(f"own_models.py:{name}", path, dim, position, bounds)


@pytest.fixture(scope="module")
def fitted(folder, quick_compilation, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "fits" / "schools"
    before = os.getcwd()
    os.chdir(folder)
    try:
        command = ("fit", "own_models.py:schools", "--data", "schools.json", "--output", out, *QUICK)
        extra = ("--draws", "csv", "--draws", "npz", "--num-draws", 7)
        return natmix(*command, *extra), out, command
    finally:
        os.chdir(before)


def test_a_model_is_fitted_and_everything_is_written(fitted):
    outcome, out, _ = fitted
    assert outcome.exit_code == 0, outcome.output
    result = Result.load(out / "result.safetensors")
    assert (out / "summary.txt").read_text().strip() in outcome.output
    assert str(result.diagnosis).splitlines()[0] in outcome.output
    assert str(out) in outcome.output
    assert result.model.latent == ("mu", "theta")
    header, *rows = (out / "draws.csv").read_text().splitlines()
    assert header.split(",") == ["mu", "theta[0]", "theta[1]", "theta[2]"]
    assert len(rows) == 7
    with np.load(out / "draws.npz") as draws:
        assert draws["theta"].shape == (7, 3)
        np.testing.assert_allclose(draws["mu"], [float(row.split(",")[0]) for row in rows])


def test_the_same_command_writes_there_again_and_another_is_refused(fitted, folder):
    _, out, command = fitted
    before = (out / "summary.txt").read_text().splitlines()[1]
    assert natmix(*command).exit_code == 0
    assert (out / "summary.txt").read_text().splitlines()[1] == before
    assert_one_sentence(natmix(*command, "--seed", 1), "holds another fit: seed is 0 there and 1 here")
    (folder / "other.json").write_text('{"J": 1, "sigma": [1], "y": [2]}')
    other = [*command[:3], "other.json", *command[4:]]
    assert_one_sentence(natmix(*other), "its data are other ones")
    elsewhere = natmix("fit", "own_models.py:gaussian", "--dim", 1, "--output", folder)
    assert_one_sentence(elsewhere, "holds other files and no fit")


def test_a_checkpoint_that_has_finished_gives_its_result_and_strict_judges_it(tmp_path):
    options = (*QUICK, "--init-mean", 9, "--checkpoint", tmp_path / "ck")
    command = ("fit", "own_models.py:gaussian", "--dim", 1, *options)
    first = natmix(*command, "--output", tmp_path / "a")
    assert first.exit_code == 0, first.output
    second = natmix(*command, "--output", tmp_path / "b", "--strict")
    assert_one_sentence(second, "not trust (--strict)", code=3)
    a, b = ((tmp_path / name / "summary.txt").read_text() for name in "ab")
    assert a == b
    refused = natmix(*command, "--seed", 3, "--output", tmp_path / "c")
    assert_one_sentence(refused, "seed 0, not 3")
    assert not (tmp_path / "c").exists()


# What a target may be -----------------------------------------------------------------------------


def test_a_numpyro_model_gets_its_data_by_name():
    for name, data in (("schools", "schools.json"), ("in_parts", "y.toml")):
        found = arguments(name, data)
        assert found.target.__name__ == name
        assert set(found.others["model_kwargs"]) == set(read_data(Path(data)))


def test_a_log_density_of_vectors_with_its_data():
    assert arguments("gaussian", dim=2).others == {"dim": 2}
    found = arguments("of_data", "y.toml", dim=1)
    assert found.target(np.array([1.0]), found.others["data"]) == pytest.approx(-0.5)
    (Path("exact.json")).write_text('{"y": [1, 2, 3], "t": [0, 1, 2]}')
    found = arguments("line", "exact.json", dim=2)
    assert found.target(np.array([1.0, 1.0]), found.others["data"]) == pytest.approx(0.0)
    outcome = natmix("fit", "own_models.py:line", "--data", "exact.json", "--dim", 2, *QUICK)
    assert outcome.exit_code == 0, outcome.output
    assert Path("fits/line/result.safetensors").is_file()


def test_a_log_density_of_named_arrays():
    position, bounds = '{"mu": 0, "theta": [0, 0], "scale": 1}', '{"scale": [0, null]}'
    outcome = natmix(
        "fit", "own_models.py:named", "--position", position, "--bounds", bounds, *QUICK, "--draws", "csv"
    )
    assert outcome.exit_code == 0, outcome.output
    header, *rows = Path("fits/named/draws.csv").read_text().splitlines()
    names = header.split(",")
    assert sorted(names) == ["mu", "scale", "theta[0]", "theta[1]"]
    assert all(float(row.split(",")[names.index("scale")]) > 0 for row in rows)


def test_a_pymc_model_and_a_function_that_returns_one():
    found = arguments("pymc_model", "y.toml")
    assert type(found.target).__name__ == "Model"
    assert found.others == {}
    Path("n.json").write_text('{"n": 2}')
    assert arguments("made", "n.json").target.dim == 2


def test_a_stan_program_gets_its_data():
    Path("line.stan").write_text("parameters { real x; } model { x ~ normal(0, 1); }")
    found = target_arguments("line.stan", Path("y.toml"), None, None, None)
    assert found.target == Path("line.stan")
    np.testing.assert_array_equal(found.others["model_kwargs"]["y"], [1.0, 2.0])
    with pytest.raises(ValueError, match="leave --dim out"):
        target_arguments("line.stan", None, 3, None, None)


def test_names_with_dots_and_modules_by_their_names():
    assert load_object("own_models.py:Things.density")(np.zeros(1)) == pytest.approx(-0.5)
    assert load_object("own_models:gaussian")(np.ones(1)) == pytest.approx(0.0)
    assert load_object("math:pi") == pytest.approx(np.pi)


# Mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["nosuch:f"], "There is no module 'nosuch'"),
        (["nosuch.py:f"], "There is no file nosuch.py"),
        (["own_models.py"], "Name the target in own_models.py too, as in own_models.py:NAME. There are"),
        (["own_models"], "A target is named as module:name"),
        (["own_models.py:gausian"], "has no 'gausian'. Did you mean 'gaussian'?"),
        (["broken_model.py:x"], "cannot be imported: it raised NameError in line 2"),
        (["own_models.py:number"], "own_models.py:number is of the type int: name"),
        (["own_models.py:gaussian"], "looks like a log density of 'x': give the length"),
        (["own_models.py:schools"], "the data do not have 'J', 'sigma'"),
        (["own_models.py:schools", "--data", "y.toml"], "the data do not have 'J', 'sigma'"),
        (["own_models.py:schools", "--data", "line.npz"], "it does not take 't', 'n'"),
        (["own_models.py:line", "--dim", "2", "--data", "y.toml"], "the data do not have 't'"),
        (["own_models.py:nothing", "--data", "y.toml"], "returned nothing and draws no variables"),
        (["own_models.py:breaks", "--data", "y.toml"], "it raised KeyError: 'gone'"),
        (["own_models.py:gaussian", "--dim", "2", "--data", "nosuch.json"], "There is no file nosuch.json"),
        (["own_models.py:gaussian", "--dim", "2", "--data", "own_models.py"], "from a .json, .toml or .npz"),
        (["nosuch.stan"], "There is no Stan program nosuch.stan"),
        (["own_models.py:gaussian", "--dim", "0"], "dim"),
        (["own_models.py:gaussian", "--dim", "2", "--accuracy", "much"], "--accuracy is a number of nats"),
        (["own_models.py:gaussian", "--dim", "2", "--max-seconds", "soon"], "A time is written"),
        (["own_models.py:gaussian", "--dim", "2", "--resume", "maybe"], "--resume is yes, no or anyway"),
        (["own_models.py:gaussian", "--dim", "2", "--draws", "xlsx"], "--draws is npz or csv"),
        (["own_models.py:gaussian", "--dim", "2", "--dtype", "float16"], "dtype must be float32 or float64"),
        (["own_models.py:gaussian", "--dim", "2", "--set", "problem.a=1"], "only problems of `natmix run`"),
        (["own_models.py:gaussian", "--dim", "2", "--init-mean", "a"], "--init-mean is a number"),
        (["own_models.py:named", "--position", "{mu: 0}"], "--position takes JSON"),
        (["own_models.py:named", "--position", '{"mu": 0}', "--bounds", "[1]"], "--bounds takes [low, high]"),
    ],
)
def test_mistakes_get_one_sentence(command, words, tmp_path):
    assert_one_sentence(natmix("fit", *command, "--output", tmp_path / "out"), words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("list.json", "[1, 2]", "must hold data by name"),
        ("cut.json", '{"y": [1,', "cannot be read as JSON"),
        ("cut.toml", "y = [1,", "cannot be read as TOML"),
        ("rows.json", '{"y": [[1, 2], [3]]}', "y has rows of different lengths"),
        ("mixed.json", '{"y": [1, "a"]}', "y mixes numbers with other values"),
        ("no.npz", "text", "cannot be read as .npz"),
    ],
)
def test_data_that_cannot_be_used_get_one_sentence(name, content, words, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=words):
        read_data(tmp_path / name)


def test_data_become_arrays_and_other_values_stay(tmp_path):
    path = tmp_path / "all.json"
    path.write_text('{"y": [1, 2], "z": [1, null], "w": ["a"], "n": 3, "b": true, "deep": {"x": [[1.5]]}}')
    found = read_data(path)
    assert found["y"].dtype.kind == "i"
    np.testing.assert_array_equal(found["z"], [1, np.nan])
    assert (found["w"], found["n"], found["b"]) == (["a"], 3, True)
    assert found["deep"]["x"].shape == (1, 1)
    assert read_data(Path("line.npz"))["n"] == 3


def test_objects_of_python_in_npz_are_refused(tmp_path):
    np.savez(tmp_path / "objects.npz", y=np.array([{}], object))
    with pytest.raises(ValueError, match="without Python objects"):
        read_data(tmp_path / "objects.npz")


@pytest.mark.slow
def test_sigterm_keeps_what_there_is_and_the_same_command_goes_on(folder, tmp_path):
    options = ["--dim", "2", "--accuracy", "none", "--max-iterations", "1500", "--no-verify", "--quiet"]
    folders = ["--checkpoint", str(tmp_path / "ck"), "--checkpoint-seconds", "0", "--output"]
    command = [sys.executable, "-m", "natmix", "fit", "own_models:gaussian", *options, *folders]
    process = subprocess.Popen([*command, str(tmp_path / "out")], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "ck" / "state.safetensors").is_file():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "interrupted. Repeat the command to continue from there" in told
    assert Result.load(tmp_path / "out" / "result.safetensors").stopped == "interrupted"
    subprocess.run([*command, str(tmp_path / "out")], check=True, timeout=300)
    assert Result.load(tmp_path / "out" / "result.safetensors").stopped != "interrupted"
