"""Eight simulated devices give the numbers of one; they must be asked for before JAX starts."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SUPPORT = Path(__file__).parents[1] / "support"
FLAGS = " --xla_force_host_platform_device_count=8"


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    path = tmp_path_factory.mktemp("sharding") / "seen.json"
    script = [sys.executable, str(SUPPORT / "sharded_runs.py"), str(path)]
    flags = {"XLA_FLAGS": os.environ["XLA_FLAGS"] + FLAGS}  # those of conftest.py too
    done = subprocess.run(script, env={**os.environ, **flags}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", ["SAMTRON", "ZAMTRUX", "SEPYFUX"])
def test_same_numbers_as_on_one_device(seen, name):
    run = seen[name]
    assert run["moved"] > 1e-3
    assert run["mixture"] < 1e-8
    assert run["elbo"] < 1e-8
    assert run["counts"][0] == run["counts"][1]
    assert run["components"][0] == run["components"][1]


@pytest.mark.parametrize("name", ["SAMTRON", "ZAMTRUX", "SEPYFUX"])
def test_components_are_divided_among_the_devices(seen, name):
    shares = seen[name]["shares"]
    rows = seen[name]["rows"][-1]
    own = [
        path for path in shares if path == ".ids" or path.startswith(".mixture") or re.search("value", path)
    ]
    assert len(own) > 5
    for path in own:
        assert shares[path] == [rows, rows // 8], path


def test_stored_samples_are_divided_if_they_can_be(seen):
    database = ".component_adaptation.database.x"
    assert seen["SAMTRON"]["shares"][database] == [800, 100]
    assert seen["ZAMTRUX"]["shares"][database] == [801, 801]
    rows = seen["SEPYFUX"]["rows"][-1]
    ring = ".sample_selector.gradient"
    assert seen["SEPYFUX"]["shares"][ring] == [20 * rows, 20 * rows]  # they move: everywhere


def test_rows_are_rounded_up_and_growth_keeps_the_division(seen):
    assert seen["SAMTRON"]["rows"][0] == 8
    assert seen["SAMTRON"]["rows"][-1] == 16


def test_noise_that_points_of_a_block_share_is_the_same(seen):
    one, many = seen["noisy"]
    assert len(one) == 8 * 31
    np.testing.assert_allclose(many, one, rtol=1e-12)


def test_every_device_factorises_its_own_components_only(seen):
    lapack = [line for line in seen["program"].splitlines() if 'custom_call_target="lapack' in line]
    loops = [line for line in seen["program"].splitlines() if '"natmix_trust_region"' in line]
    # All in one call; or eigenvalues, Cholesky factors and triangular solves.
    assert len(loops) == 1 or len(lapack) >= 3
    sizes = [re.search(r"f64\[(?:(\d+),)?3,3\]", line) for line in lapack + loops]
    assert {size[1] for size in sizes} <= {"1", None}  # one after another on a CPU


def test_log_densities_are_divided_by_samples(seen):
    # 16 components with 20 samples each, on 8 devices.
    assert not re.search(r"f64\[320,16\]", seen["program"])
    assert re.search(r"f64\[40,16\]", seen["program"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("two axes", "one axis"),
        ("a number", "list of devices"),
        ("twice", "a device twice"),
        ("rows", "5 component slots cannot be divided among 8 devices"),
    ],
)
def test_a_mesh_that_does_not_fit_gives_a_clear_sentence(seen, name, words):
    assert words in seen["messages"][name]


@pytest.mark.parametrize("form", ["circular", "stacked"])
def test_the_forms_for_accelerators_on_a_mesh(seen, form):
    densities, score = seen["accelerator forms"][form]
    assert densities < 1e-9
    assert score < 1e-9


def test_fit_on_a_mesh(seen):
    fit = seen["fit"]
    value, error = fit["elbo"]
    assert abs(value) < 0.05 + 4 * error  # the target is normalised
    assert fit["devices"] == [8, 3]
    assert fit["components"] > 1
    assert fit["outside"] > 0  # log(2 pi), and a few iterations from a standard normal
    assert fit["alone"]
