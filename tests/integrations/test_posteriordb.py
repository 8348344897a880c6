"""Entries of posteriordb, read by the package of that name from a database of one entry."""

import importlib
import importlib.util
import json
import sys
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path

import numpy as np
import pytest

import natmix
from natmix.models import Given, StanModel

PROGRAM = """
data { int N; vector[N] y; }
parameters { real mu; }
model { mu ~ normal(1, 2); y ~ normal(mu, 1.5); }
"""
DATA = {"N": 5, "y": [0.3, 1.8, 2.2, -0.5, 1.1]}


@pytest.fixture
def package(monkeypatch):
    """The package, which a folder of benchmarks hides from the tests."""
    installed = [path for path in sys.path if Path(path).name == "site-packages"]
    if PathFinder.find_spec("posteriordb", installed) is None:
        pytest.skip("needs the package posteriordb")
    for name in [name for name in sys.modules if name.split(".")[0] == "posteriordb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [*installed, *sys.path])
    yield importlib.import_module("posteriordb")
    for name in [name for name in sys.modules if name.split(".")[0] == "posteriordb"]:
        del sys.modules[name]


def written(package, root, implementations):
    """A database with one posterior."""
    entries = {
        "posteriors/five-mean.json": {
            "name": "five-mean",
            "model_name": "mean",
            "data_name": "five",
            "reference_posterior_name": None,
        },
        "models/info/mean.info.json": {"name": "mean", "model_implementations": implementations},
        "data/info/five.info.json": {"name": "five", "data_file": "data/data/five.json"},
    }
    for path, content in entries.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(json.dumps(content))
    (root / "models" / "mean.stan").write_text(PROGRAM)
    (root / "data" / "data").mkdir(parents=True)
    with zipfile.ZipFile(root / "data" / "data" / "five.json.zip", "w") as archive:
        archive.writestr("five.json", json.dumps(DATA))
    return package.PosteriorDatabase(root).posterior("five-mean")


@pytest.fixture
def posterior(package, tmp_path):
    return written(package, tmp_path, {"stan": {"model_code": "models/mean.stan"}})


def test_an_entry_is_a_stan_program_with_its_data(posterior, monkeypatch):
    taken = []
    monkeypatch.setattr(StanModel, "__init__", lambda self, code, data: taken.append((code, data)))
    assert StanModel.recognises(Given(posterior))
    StanModel.from_given(Given(posterior))
    assert taken == [(PROGRAM, DATA)]
    with pytest.raises(ValueError, match="A posterior of posteriordb knows its data"):
        natmix.fit(posterior, model_kwargs=DATA)


def test_an_entry_without_a_stan_program_says_so(package, tmp_path):
    with pytest.raises(ValueError, match="'five-mean' of posteriordb has no Stan program"):
        natmix.fit(written(package, tmp_path, {}))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("httpstan") is None, reason="needs httpstan, of the extra stan")
def test_an_entry_is_fitted(posterior):
    result = natmix.fit(posterior, progress=False)
    y = np.array(DATA["y"])
    precision = 1 / 4 + 5 / 1.5**2
    assert result.diagnosis.trusted
    assert result.sample(4000)["mu"].mean() == pytest.approx((1 / 4 + y.sum() / 1.5**2) / precision, abs=0.05)
