"""The command, as a user types it."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import natmix
from natmix import MODULES, Mixture
from natmix.cli import app, demo
from natmix.cli.target import log_density
from natmix.plot.grid import on_grid
from natmix.text.extras import install

PNG = b"\x89PNG\r\n"


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return run("demo", "--out", str(out), "--seed", "3", "--max-iterations", "3"), out


def test_version_says_if_the_kernels_are_missing(monkeypatch):
    monkeypatch.setattr("natmix.kernels.native.available", lambda: True)
    assert run("--version").output == f"natmix {natmix.__version__}\n"
    monkeypatch.setattr("natmix.kernels.native.available", lambda: False)
    outcome = run("--version")
    assert outcome.exit_code == 0
    first, second = outcome.output.splitlines()
    assert first == f"natmix {natmix.__version__}"
    assert second.startswith("without native kernels: fits on a CPU are slower")


def test_python_dash_m_is_the_same_command():
    command = [sys.executable, "-m", "natmix", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == CliRunner().invoke(app, ["--version"]).stdout


def test_no_arguments_show_the_commands():
    output = run().output
    assert "demo" in output
    assert "options" in output


def test_options_lists_every_letter_and_hyperparameter_in_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    outcome = run("options")
    assert outcome.exit_code == 0
    lines = outcome.output.splitlines()
    assert max(map(len, lines)) <= 80
    words = outcome.output.split()
    for module, choices in MODULES.items():
        assert any(line.startswith(f"{module}: ") for line in lines)
        for option in choices:
            assert any(line.split()[:2] == [option.letter, option.title.split()[0]] for line in lines)
            assert all(name in words for name, _, _ in option.hyperparameters())
    assert "temperature" in words
    assert "codename" in outcome.output


def test_demo_saves_a_picture_and_the_mixture(finished_demo):
    outcome, out = finished_demo
    assert outcome.exit_code == 0
    assert (out / "fit.png").read_bytes().startswith(PNG)
    assert Mixture.load(out / "mixture.safetensors").dim == 2
    assert str(out / "fit.png") in outcome.output
    assert str(out / "mixture.safetensors") in outcome.output


def test_demo_shows_progress_and_the_summary(finished_demo):
    outcome, _ = finished_demo
    assert "SAMTRON on 2 dimensions: stopped at the limit of iterations" in outcome.output
    assert "iteration 1" in outcome.stderr


def test_demo_without_matplotlib_says_so_and_keeps_the_mixture(monkeypatch, tmp_path, finished_demo):
    monkeypatch.setattr(demo, "_has_matplotlib", lambda: False)
    outcome = run("demo", "--out", str(tmp_path), "--max-iterations", "1")
    assert outcome.exit_code == 0
    assert install("plot") in outcome.output
    assert not (tmp_path / "fit.png").exists()
    assert (tmp_path / "mixture.safetensors").exists()


def test_report_without_matplotlib_names_the_extra(monkeypatch):
    from natmix.plot.style import pyplot

    def no_matplotlib(name, *_):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", no_matplotlib)
    with pytest.raises(ImportError, match=re.escape(install("plot"))):
        pyplot()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--codename", "samtronx"], "both choose the"),
        (["--codename", "qamtron"], "is not the letter of an option"),
        (["--codename", "samtro"], "has no letter for"),
        (["--max-iterations", "0"], "max_iterations must be"),
    ],
)
def test_mistakes_get_one_sentence(arguments, words, tmp_path):
    outcome = run("demo", "--out", str(tmp_path / "out"), *arguments)
    assert outcome.exit_code == 2
    assert words in outcome.stderr
    assert outcome.stderr.startswith("natmix: ")
    assert len(outcome.stderr.splitlines()) == 1
    assert "Traceback" not in outcome.output


def test_a_folder_that_cannot_be_made_gets_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    outcome = run("demo", "--out", str(tmp_path / "file" / "out"))
    assert outcome.exit_code == 2
    assert "Not a directory" in outcome.stderr


def test_a_fixed_number_of_components_starts_with_all_of_them():
    assert demo._components("semtron") == 32
    assert demo._components("samtron") == 1


def test_the_target_of_the_demo_is_normalised_and_smooth():
    grid = np.linspace(-11, 11, 401)
    points = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
    total = np.exp(jax.jit(jax.vmap(log_density))(points)).sum() * (grid[1] - grid[0]) ** 2
    assert float(total) == pytest.approx(1, abs=1e-5)
    assert bool(np.isfinite(jax.jit(jax.vmap(jax.grad(log_density)))(points)).all())
    assert on_grid(log_density, (-8, 8, -8, 8), 50).mass.sum() == pytest.approx(1)


def test_import_is_light():
    heavy = ("matplotlib", "sklearn", "numpyro", "typer", "scipy.stats")
    code = f"import sys, natmix; print([m for m in {heavy!r} if m in sys.modules])"
    source = str(Path(natmix.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "[]"
