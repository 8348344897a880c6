"""A finished run of two seeds for the tests of the commands."""

import shutil

import pytest
from run_command import run


@pytest.fixture(scope="module")
def finished(tmp_path_factory, quick_compilation):
    out = tmp_path_factory.mktemp("cli") / "runs" / "two"
    return run(out, "--seeds", "0:2"), out


@pytest.fixture
def copy(finished, tmp_path):
    shutil.copytree(finished[1], tmp_path / "two")
    return tmp_path / "two"
