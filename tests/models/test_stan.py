"""Stan programs: the log density against SciPy, names and shapes, errors; BridgeStan by a stand-in."""

import importlib.util
import inspect
import itertools
import json
import re
import sys
import time
import types
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import dblquad

import natmix
from natmix.models import StanModel, as_model
from natmix.models.stan_backends import Program, choose, httpstan
from natmix.models.stan_backends.compiling import Compilation, showing
from natmix.models.stan_backends.data import as_data, check_data
from natmix.models.stan_backends.errors import compiler_reason
from natmix.models.stan_backends.names import Outputs
from natmix.text.extras import install

# One program for all tests, since compiling it takes most of a minute. R and K may be zero.
PROGRAM = """
data {
  int<lower=0> N;
  array[N] real y;
  int<lower=0> R;
  int<lower=0> K;
  int<lower=0, upper=1> closed;
}
parameters {
  real mu;
  real<lower=0> sigma;
  simplex[3] p;
  matrix[R, 3] A;
  array[K] vector<lower=1, upper=4>[2] b;
}
transformed parameters {
  vector[2] both = [mu, sigma]';
}
model {
  if (closed) reject("nobody may enter");
  if (mu > 50) reject("too far out");
  mu ~ normal(1, 2);
  sigma ~ exponential(0.5);
  p ~ dirichlet([2.0, 3.0, 4.0]');
  to_vector(A) ~ std_normal();
  for (k in 1:K) b[k] ~ normal(2, 1);
  y ~ normal(mu, sigma);
}
generated quantities {
  matrix[3, R] At = A';
  complex c = to_complex(mu, sigma);
  array[2] real y_new = normal_rng([mu, mu], sigma);
}
"""
Y = np.array([0.3, 1.8, 2.2, -0.5, 1.1])
DATA = {"N": 5, "y": Y, "R": 2, "K": 2, "closed": 0}

stan = pytest.mark.skipif(
    importlib.util.find_spec("httpstan") is None, reason="needs httpstan, of the extra stan"
)


@pytest.fixture(scope="module")
def model():
    return StanModel(PROGRAM, DATA, backend="httpstan")


# With the compiled program -----------------------------------------------------------------------


@stan
def test_log_densities_hold_constants_and_jacobians(model):
    def simplex(x):
        return model.constrain(x[None])["p"][0, :2]

    for x in np.random.default_rng(0).normal(size=(5, model.dim)):
        v = {name: value[0] for name, value in model.constrain(x[None]).items()}
        columns = [(simplex(x + h) - simplex(x - h)) / 2e-5 for h in 1e-5 * np.eye(model.dim)[2:4]]
        expected = (
            stats.norm(1, 2).logpdf(v["mu"])
            + stats.expon(scale=2).logpdf(v["sigma"])
            + stats.dirichlet([2, 3, 4]).logpdf(v["p"])
            + stats.norm().logpdf(v["A"]).sum()
            + stats.norm(2, 1).logpdf(v["b"]).sum()
            + stats.norm(v["mu"], v["sigma"]).logpdf(Y).sum()
            + np.log(v["sigma"])
            + np.linalg.slogdet(np.array(columns))[1]
            + np.log((v["b"] - 1) * (4 - v["b"]) / 3).sum()
        )
        assert float(model.log_density(x)) == pytest.approx(expected, abs=1e-6)


@stan
def test_gradients_are_those_of_the_log_density(model):
    x = np.random.default_rng(1).normal(size=(4, model.dim))
    values, gradients = model.target().call(x, needs_gradient=True)
    alone, nothing = model.target().call(x, needs_gradient=False)
    assert nothing is None
    np.testing.assert_allclose(values, alone, rtol=1e-12)
    for row, gradient in zip(x, gradients, strict=True):
        steps = 1e-5 * np.eye(model.dim)
        slopes = [(model.log_density(row + h) - model.log_density(row - h)) / 2e-5 for h in steps]
        np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-6)


@stan
def test_variables_have_stan_s_names_and_shapes(model):
    x = np.random.default_rng(2).normal(size=(7, model.dim))
    v = model.constrain(x)
    shapes = {name: value.shape[1:] for name, value in v.items()}
    parameters = {"mu": (), "sigma": (), "p": (3,), "A": (2, 3), "b": (2, 2)}
    assert shapes == parameters | {"both": (2,), "At": (3, 2), "c": (), "y_new": (2,)}
    np.testing.assert_allclose(v["mu"], x[:, 0])
    np.testing.assert_allclose(v["sigma"], np.exp(x[:, 1]))
    np.testing.assert_allclose(v["p"].sum(axis=1), 1)
    np.testing.assert_array_equal(v["At"], v["A"].swapaxes(1, 2))
    np.testing.assert_array_equal(v["both"], np.stack([v["mu"], v["sigma"]], axis=1))
    np.testing.assert_array_equal(v["c"], v["mu"] + 1j * v["sigma"])
    # The coordinates say where the entries of arrays are: A is read by columns, b by rows.
    for i, j in itertools.product(range(2), range(3)):
        np.testing.assert_allclose(x[:, model.coordinates.index(f"A[{i + 1},{j + 1}]")], v["A"][:, i, j])
    for i, j in itertools.product(range(2), repeat=2):
        z = x[:, model.coordinates.index(f"b[{i + 1},{j + 1}]")]
        np.testing.assert_allclose(1 + 3 / (1 + np.exp(-z)), v["b"][:, i, j])


@stan
def test_generated_quantities_draw_anew_for_every_sample(model):
    x = np.zeros((4000, model.dim))
    noise = model.constrain(x)["y_new"].ravel()
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    np.testing.assert_array_equal(model.constrain(x)["y_new"].ravel(), noise)


@stan
def test_rejected_points_have_density_zero(model):
    x = np.zeros((2, model.dim))
    x[0, 0] = 51.0
    values, gradients = model.target().call(x, needs_gradient=True)
    assert values[0] == -np.inf
    assert np.isfinite(values[1])
    assert np.isfinite(gradients).all()
    assert "too far out" in model._backend.rejection


@stan
def test_threads_change_no_bit(model, monkeypatch):
    x = np.random.default_rng(3).normal(size=(3000, model.dim))
    x[[100, 2000], 0] = 51.0, 52.0  # rejected
    found = {}
    for threads in (1, 2, 5):
        monkeypatch.setenv("NPROC", str(threads))
        model._backend.rejection = ""
        found[threads] = (
            *model._backend.with_gradients(x),
            model._backend.values(x),
            model._backend.rejection,
        )
    for values in zip(*found.values(), strict=True):
        assert np.array_equal(values[0], values[1])
        assert np.array_equal(values[0], values[2])
    alone = np.array([model._backend.values(row[None])[0] for row in x[:200]])
    np.testing.assert_array_equal(alone, found[2][2][:200])
    assert np.isneginf(found[2][0]).sum() == 2


@stan
def test_many_points_use_the_threads(model, monkeypatch):
    """The calling thread does not do all of the work."""
    monkeypatch.setenv("NPROC", "2")
    x = np.random.default_rng(3).normal(size=(100_000, model.dim))
    before = time.thread_time(), time.process_time()
    model._backend.with_gradients(x)
    assert time.thread_time() - before[0] < 0.9 * (time.process_time() - before[1])


@stan
def test_a_program_compiles_once_as_code_and_as_path(model, tmp_path, monkeypatch):
    monkeypatch.setattr(Compilation, "__enter__", lambda self: pytest.fail("it compiles again"))
    path = tmp_path / "other.stan"
    path.write_text(PROGRAM)
    again = StanModel(path, DATA, backend="httpstan")
    assert again.build_seconds == 0
    x = np.zeros((1, model.dim))
    x[0, 0] = 51.0
    assert again.log_density(x[0]) == -np.inf
    assert "'other.stan', line" in again._backend.rejection
    model.log_density(x[0])
    assert "'program.stan', line" in model._backend.rejection


@stan
def test_includes_are_part_of_the_program(model, tmp_path):
    head, rest = PROGRAM.split("model {", 1)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.stan").write_text(head + "#include rest.inc\n")
        (tmp_path / folder / "rest.inc").write_text("model {" + rest)
    (tmp_path / "two" / "rest.inc").write_text("model {" + rest.replace("normal(1, 2)", "normal(0, 2)"))
    keys = []
    for folder, name in (("one", "one"), ("two", "two"), ("two", "three")):
        (tmp_path / folder).rename(tmp_path / name) if folder != name else None
        program = Program.read(tmp_path / name / "model.stan")
        scratch = tmp_path / f"scratch {name}"
        scratch.mkdir()
        kept = httpstan._Kept.find(httpstan._package(), program, scratch)
        assert list(kept.inputs()) == list(DATA)
        keys.append(kept._folder)
    assert keys[0] != keys[1] == keys[2]


@stan
def test_a_fit_has_the_evidence_of_the_program():
    data = {**DATA, "R": 0, "K": 0}
    result = natmix.fit(PROGRAM, model_kwargs=data, max_iterations=60, progress=False)
    assert result.algorithm.codename.startswith("S")  # by gradients
    assert result.settings["start"] == "pathfinder"

    def density(mu, sigma):
        log_prior = stats.norm.logpdf(mu, 1, 2) + stats.expon.logpdf(sigma, scale=2)
        return np.exp(log_prior + stats.norm.logpdf(Y, mu, sigma).sum())

    evidence = np.log(dblquad(density, 0.2, 15, -6, 8, epsrel=1e-4)[0])
    assert result.diagnosis.log_evidence.value == pytest.approx(evidence, abs=0.03)
    x = result.sample(20_000)
    np.testing.assert_allclose(x["p"].mean(axis=0), np.array([2, 3, 4]) / 9, atol=0.02)
    spread = np.sqrt(x["mu"].var() + np.mean(x["sigma"] ** 2))
    assert x["y_new"].std() == pytest.approx(spread, rel=0.1)
    np.testing.assert_array_equal(result.model.observed["y"], Y)
    pytest.importorskip("arviz")
    assert "y" in result.to_arviz()["observed_data"]


@stan
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, "declares data that were not given: y"),
        ({"N": 5.5}, "'N' as whole numbers"),
        ({"N": [5]}, "'N' must have 0 dimensions"),
        ({"y": Y[:4]}, "does not accept the data: mismatch in dimension.*name=y"),
        ({"N": -1}, "does not accept the data: .*N is -1"),
        ({"y": list("abcde")}, "'y' must be a number or an array of numbers"),
        ({"y": [[1.0], [1.0, 2.0]]}, "rows of equal length"),
        ({"closed": 1}, "no finite log density at any of 101 points.*nobody may enter"),
    ],
)
def test_data_that_do_not_fit(change, message):
    data = {name: value for name, value in {**DATA, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=message) as error:
        StanModel(PROGRAM, data, backend="httpstan")
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(".")


@stan
def test_programs_that_do_not_compile(tmp_path):
    wrong = PROGRAM.replace("[mu, sigma]'", "[mu, tau]'")
    with pytest.raises(ValueError, match=r"line 17, .*: Identifier .tau. not in scope") as error:
        natmix.fit(wrong)
    assert "\n" not in str(error.value)
    path = tmp_path / "wrong.stan"
    path.write_text(PROGRAM.replace("real mu;", "real mu"))
    with pytest.raises(ValueError, match=r"wrong.stan.*expected"):
        natmix.fit(path)


@stan
def test_a_missing_compiler_is_told(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match=r"CXX names 'no-such-compiler', which was not found"):
        StanModel(PROGRAM, DATA, backend="httpstan")


# Without Stan ------------------------------------------------------------------------------------


def test_arguments_that_cannot_be_a_program(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"path of a \.stan file, got 'nothing'"):
        StanModel("nothing")
    with pytest.raises(ValueError, match="cannot be read"):
        natmix.fit(tmp_path / "missing.stan")
    with pytest.raises(ValueError, match="data must be a dictionary"):
        StanModel(PROGRAM, [1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave model_args"):
        natmix.fit(PROGRAM, model_args=(1,))
    with pytest.raises(ValueError, match="backend must be one of bridgestan, httpstan"):
        StanModel(PROGRAM, DATA, backend="cmdstan")
    with pytest.raises(ValueError, match="observed names 'z'"):
        StanModel(PROGRAM, DATA, observed=["z"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=re.escape(install("stan"))):
        StanModel(PROGRAM, DATA)


def test_data_become_json(tmp_path):
    given = {"n": np.int64(3), "on": True, "z": 1 + 2j, "t": (1, np.eye(2)), "far": [np.inf, 1.0]}
    data = as_data(given)
    assert json.loads(data.json) == {
        "n": 3,
        "on": 1,
        "z": [1.0, 2.0],
        "far": [np.inf, 1.0],
        "t": {"1": 1, "2": [[1.0, 0.0], [0.0, 1.0]]},
    }
    path = tmp_path / "data.json"
    path.write_text(data.json)
    assert as_data(path).json == data.json
    check_data(
        as_data(path), {"n": {"type": "int", "dimensions": 0}, "far": {"type": "real", "dimensions": 1}}
    )
    path.write_text("[1]")
    with pytest.raises(ValueError, match="must be a JSON object"):
        as_data(path)


def test_flat_names_become_arrays():
    flat = ("a", "M.1.1", "M.2.1", "M.1.2", "M.2.2", "z.1.real", "z.1.imag", "t:1", "t:2.1")
    v = Outputs(flat).arrays(np.arange(9.0)[None])
    np.testing.assert_array_equal(v["M"], [[[1, 3], [2, 4]]])
    np.testing.assert_array_equal(v["z"], [[5 + 6j]])
    assert list(v) == ["a", "M", "z", "t:1", "t:2"]
    assert v["a"].shape == v["t:1"].shape == (1,)
    assert v["t:2"].shape == (1, 1)


def test_the_reason_of_a_compiler_is_found():
    rule = "-" * 49
    cited = f"Semantic error in 'a.stan', line 2, column 4 to column 5:\n  {rule}\n 2: x\n    ^\n  {rule}\n\n"
    where = "Semantic error in 'a.stan', line 2, column 4 to column 5"
    for after in ("", "\n", "\nmake: *** [a.so] Error 1\n"):
        assert compiler_reason(f"stderr:\n{cited}Identifier 'x' not in scope.{after}") == (
            f"{where}: Identifier 'x' not in scope."
        )
    assert compiler_reason("In file a.cpp:\na.cpp:3:1: error: no such type\n more") == (
        "a.cpp:3:1: error: no such type."
    )
    assert compiler_reason("") == "it gave no reason."


@pytest.mark.parametrize(("progress", "shown"), [(None, False), (False, False), (True, True)])
def test_a_compilation_is_shown_and_timed(progress, shown, capsys):
    with showing(progress), Compilation("model.stan") as compilation:
        time.sleep(0.01)
    assert compilation.seconds >= 0.01
    text = capsys.readouterr().err
    assert ("compiling model.stan, about a minute the first time" in text) == shown


# BridgeStan --------------------------------------------------------------------------------------


class FakeStanModel:
    """Normal data with mu ~ N(0, 1), sigma ~ exponential(1), by BridgeStan's documented methods."""

    def __init__(
        self,
        model_lib,
        data=None,
        *,
        seed=1234,
        stanc_args=(),
        make_args=(),
        capture_stan_prints=True,
        warn=True,
    ):
        self.y = np.array(json.loads(data)["y"])
        if len(self.y) > 5:
            raise RuntimeError("Exception: mismatch in dimension")

    def model_info(self):
        return "Stan C++ Defines:\n\tSTAN_THREADS=true"

    def param_unc_num(self):
        return 2

    def param_unc_names(self):
        return ["mu", "sigma"]

    def param_names(self, *, include_tp=False, include_gq=False):
        assert include_tp
        assert include_gq
        return ["mu", "sigma", "y_new.1", "y_new.2", *(f"log_lik.{i + 1}" for i in range(len(self.y)))]

    def log_density(self, theta_unc, *, propto=True, jacobian=True):
        assert not propto
        assert jacobian
        mu, log_sigma = theta_unc
        if mu > 50:
            raise RuntimeError("too far out")
        sigma = np.exp(log_sigma)
        prior = stats.norm.logpdf(mu) + stats.expon.logpdf(sigma)
        return prior + stats.norm.logpdf(self.y, mu, sigma).sum() + log_sigma

    def log_density_gradient(self, theta_unc, *, propto=True, jacobian=True, out=None):
        value = self.log_density(theta_unc, propto=propto, jacobian=jacobian)
        mu, sigma = theta_unc[0], np.exp(theta_unc[1])
        z = (self.y - mu) / sigma
        return value, np.array([-mu + z.sum() / sigma, np.sum(z**2) - len(z) - sigma + 1])

    def new_rng(self, seed):
        return np.random.default_rng(seed)

    def param_constrain(self, theta_unc, *, include_tp=False, include_gq=False, out=None, rng=None):
        mu, sigma = theta_unc[0], np.exp(theta_unc[1])
        log_lik = stats.norm.logpdf(self.y, mu, sigma)
        return np.array([mu, sigma, *rng.normal(mu, sigma, size=2), *log_lik])


def fake_compile_model(stan_file, *, stanc_args=(), make_args=()):
    assert make_args == ["STAN_THREADS=True"]
    if "broken" in stan_file.read_text():
        raise RuntimeError("Command make failed\nstderr:\nSyntax error: broken")
    library = stan_file.with_suffix(".so")
    library.write_bytes(b"the program, compiled")
    return library


@pytest.fixture
def bridgestan(monkeypatch, tmp_path):
    """Stands for the package; its sources are there if the path is not empty."""
    fake: Any = types.ModuleType("bridgestan")
    fake.compile = types.ModuleType("bridgestan.compile")
    fake.path = "somewhere"
    fake.compile.get_bridgestan_path = lambda download=True: fake.path
    fake.compile_model, fake.StanModel = fake_compile_model, FakeStanModel
    monkeypatch.setitem(sys.modules, "bridgestan", fake)
    monkeypatch.setitem(sys.modules, "bridgestan.compile", fake.compile)
    monkeypatch.setenv("NATMIX_CACHE", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    return fake


def test_bridgestan_is_taken_where_it_has_its_sources(bridgestan):
    assert choose._installed(None) == "bridgestan"
    bridgestan.path = ""
    assert choose._installed(None) == "httpstan"
    assert choose._installed("bridgestan") == "bridgestan"


def test_a_fit_by_bridgestan(bridgestan):
    model = as_model("model { }", None, None, {"y": Y}, None, None)
    x = np.array([[0.3, -0.2], [51.0, 0.0]])
    values, gradients = model.target().call(x, needs_gradient=True)
    assert values[1] == -np.inf
    slopes = [(model.log_density(x[0] + h) - model.log_density(x[0] - h)) / 2e-5 for h in 1e-5 * np.eye(2)]
    np.testing.assert_allclose(gradients, [slopes, [0, 0]], rtol=1e-6, atol=1e-6)  # type: ignore[arg-type]
    result = natmix.fit(model, max_iterations=30, progress=False)
    v = result.sample(500)
    shapes = {name: value.shape for name, value in v.items()}
    assert shapes == {"mu": (500,), "sigma": (500,), "y_new": (500, 2), "log_lik": (500, 5)}
    assert v["sigma"].min() > 0
    assert np.unique(v["y_new"]).size == 1000
    assert result.marginal("sigma").support() == (0, np.inf)
    assert result.marginal("sigma").median() == pytest.approx(float(np.median(v["sigma"])), rel=0.2)
    with pytest.raises(ValueError, match="take draws"):
        result.marginal("y_new")
    with pytest.raises(ValueError, match="generated quantities"):
        result.predict(5)
    with pytest.raises(ValueError, match=r"does not compile: Syntax error: broken\.$"):
        StanModel("model { broken }", {"y": Y})
    with pytest.raises(ValueError, match=r"does not accept the data: mismatch in dimension\.$"):
        StanModel("model { }", {"y": np.zeros(6)})


@pytest.fixture
def arviz():
    """Imported before `bridgestan` makes every package seem installed."""
    return pytest.importorskip("arviz")


def test_the_log_likelihood_of_a_stan_program_is_its_log_lik(arviz, bridgestan, monkeypatch):
    model = as_model("model { }", None, None, {"y": Y}, None, None)
    result = natmix.fit(model, max_iterations=10, elbo_samples=100, progress=False)
    data = result.to_arviz(log_likelihood=True)
    assert list(data["posterior"].data_vars) == ["mu", "sigma", "y_new"]
    mu, sigma = (np.asarray(data["posterior"][name])[..., None] for name in ("mu", "sigma"))
    np.testing.assert_allclose(data["log_likelihood"]["log_lik"], stats.norm.logpdf(Y, mu, sigma))
    assert "log_lik" in result.to_arviz()["posterior"]
    names = FakeStanModel.param_names
    monkeypatch.setattr(FakeStanModel, "param_names", lambda self, **asked: names(self, **asked)[:4])
    constrain = FakeStanModel.param_constrain
    monkeypatch.setattr(FakeStanModel, "param_constrain", lambda *a, **kw: constrain(*a, **kw)[:4])
    silent = natmix.fit(
        "model { }", model_kwargs={"y": Y}, max_iterations=3, elbo_samples=100, progress=False
    )
    with pytest.raises(ValueError, match=r"log_lik;` in the block 'generated quantities'"):
        silent.to_arviz(log_likelihood=True)


def test_bridgestan_s_threads_change_no_bit(bridgestan, monkeypatch):
    model = StanModel("model { }", {"y": Y})
    x = np.random.default_rng(4).normal(size=(60, 2))
    x[[20, 40], 0] = 51.0, 52.0
    monkeypatch.setenv("NPROC", "1")
    serial = (*model._backend.with_gradients(x), model._backend.values(x))
    monkeypatch.setenv("NPROC", "3")
    for one, other in zip((*model._backend.with_gradients(x), model._backend.values(x)), serial, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isneginf(serial[0]).sum() == 2


def test_the_stand_in_has_bridgestan_s_signatures():
    real = pytest.importorskip("bridgestan")
    pairs = [(real.compile_model, fake_compile_model)]
    methods = (
        "model_info",
        "param_unc_num",
        "param_unc_names",
        "param_names",
        "log_density",
        "log_density_gradient",
    )
    for name in (*methods, "new_rng", "param_constrain"):
        pairs.append((getattr(real.StanModel, name), getattr(FakeStanModel, name)))
    for theirs, ours in pairs:
        assert list(inspect.signature(theirs).parameters) == list(inspect.signature(ours).parameters)
    known = inspect.signature(real.StanModel.__init__).parameters
    assert set(inspect.signature(FakeStanModel.__init__).parameters) <= set(known)
