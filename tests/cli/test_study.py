"""``natmix study`` and ``natmix tune``; trials are simulated."""

import csv
from pathlib import Path

import pytest
import study_model
from run_command import assert_one_sentence, natmix
from study_files import SMALL, SimulatedPool

from natmix.experiments.studies.study_folder import StudyFolder


@pytest.fixture
def simulated(monkeypatch):
    """Trials that end at once."""
    monkeypatch.setattr("natmix.cli.study._pool", lambda folder, *_: SimulatedPool(folder))


@pytest.fixture
def done(simulated, tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    outcome = natmix("study", "run", tmp_path / "small.toml", "--out", tmp_path / "out")
    assert outcome.exit_code == 0, outcome.output
    return tmp_path / "out", outcome


def test_list_and_show():
    listed = natmix("study", "list").output
    assert "experiment2            Experiment 2: weight updates and exploration" in listed
    shown = natmix("study", "show", "experiment2").output
    assert 'codenames = ["S[AE][MP]TR[OU][XGN]"]' in shown


def test_run_shows_each_trial_and_the_results(done):
    _, outcome = done
    lines = [line for line in outcome.stderr.splitlines() if "trial" in line]
    assert len(lines) == 6
    assert lines[-1].startswith("6/6  trial ")
    assert "Budget of a trial: gmm2 20 iterations. ± is one standard error." in outcome.stdout
    assert "component_adaptation  Adaptive (A)" in outcome.stdout


def test_run_again_runs_nothing(done, tmp_path):
    again = natmix("study", "run", tmp_path / "small.toml", "--out", done[0])
    assert again.exit_code == 0
    assert "trial 0" not in again.stderr


def test_status_results_best_plot(done, tmp_path):
    out, _ = done
    status = natmix("study", "status", out).output
    assert "gmm2     SAMTRUX     3 of 3         3       0       0            0" in status
    assert "6 of 6 settings are done." in status
    assert natmix("study", "results", out, "--out", tmp_path / "rows.csv").exit_code == 0
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert {row["component_adaptation.add_iters"] for row in rows if row["codename"] == "SEMTRUX"} == {""}
    best = natmix("study", "best", out, "--codename", "samtrux").output
    assert best.startswith("# SAMTRUX on gmm2: ")
    assert "natmix run gmm2 --algorithm samtrux" in best
    assert "--components" in best
    plotted = natmix("study", "plot", out)
    assert plotted.exit_code == 0, plotted.output
    assert "natmix: no curves-gmm2.png: The run directories" in plotted.stderr  # simulated trials have none
    assert {path.name.split("-")[0] for path in (out / "figures").iterdir()} == {
        "options.png",
        "settings",
    }


def test_several_folders_of_one_study(simulated, tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, codename in zip(folders, ("S?MTRUX", "SAMTRUX"), strict=True):
        natmix("study", "run", tmp_path / "small.toml", "--out", folder, "--codenames", codename)
    outcome = natmix("study", "results", *folders, "--out", tmp_path / "rows.csv")
    assert "3 trials have the setting and the seed of one in an earlier folder" in outcome.stderr
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["folder"] for row in rows] == [str(folders[0])] * 6
    assert f"(trials {folders[0]}:" in natmix("study", "best", *folders).output
    assert_one_sentence(natmix("study", "plot", *folders), "--out FOLDER")
    plotted = natmix("study", "plot", *folders, "--out", tmp_path / "figures")
    assert plotted.exit_code == 0, plotted.output
    assert (tmp_path / "figures" / "options.png").is_file()
    (tmp_path / "other.toml").write_text(SMALL)
    natmix("study", "run", tmp_path / "other.toml", "--out", tmp_path / "c")
    assert_one_sentence(
        natmix("study", "results", folders[0], tmp_path / "c"),
        "name is other there and small here; only folders of one study can be put together",
    )


def test_errors_are_one_sentence(done, tmp_path):
    out, _ = done
    assert_one_sentence(natmix("study", "run", "experiment7"), "Did you mean 'experiment1'?")
    assert_one_sentence(natmix("study", "status", tmp_path), "there is no study here")
    assert_one_sentence(natmix("study", "best", out, "--problem", "gmm3"), "Did you mean 'gmm2'?")
    assert_one_sentence(natmix("study", "best", out, "--codename", "samtron"), "Did you mean 'SAMTRUX'?")
    assert_one_sentence(natmix("study", "run", tmp_path / "small.toml", "--scale", "0"), "--scale must be")
    assert_one_sentence(natmix("study", "run", tmp_path / "small.toml", "--trials", "0"), "--trials must be")
    assert_one_sentence(
        natmix("study", "run", tmp_path / "small.toml", "--problems", "stm2"), "no problem 'stm2'"
    )
    assert_one_sentence(natmix("study", "run", tmp_path / "small.toml", "--jobs", "0"), "--jobs must be")
    assert_one_sentence(natmix("study", "job-script", "--slurm", "queue"), "--slurm takes NAME=VALUE")


def test_a_wrong_scheduler(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    outcome = natmix("study", "run", tmp_path / "small.toml", "--out", tmp_path / "o", "--scheduler", "sun")
    assert_one_sentence(outcome, "--scheduler is auto, processes, dask, slurm or an address")


def test_tune_ends_with_python(simulated, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(Path(study_model.__file__).read_text())
    monkeypatch.chdir(tmp_path)
    options = ("--sampler", "random", "--storage", "none", "--trials", 3, "--codenames", "SEMTR[OU]X")
    outcome = natmix("tune", "mine.py:bumps", "--dim", 2, "--init-scale", 3, "--out", "tuned", *options)
    assert outcome.exit_code == 0, outcome.output
    python = (tmp_path / "tuned" / "best.py").read_text()
    assert python in outcome.stdout
    assert "from mine import bumps\n" in python
    assert "    init_scale=3.0,\n" in python
    calls = []
    monkeypatch.setattr("natmix.fit", lambda target, **arguments: calls.append((target, arguments)))
    monkeypatch.syspath_prepend(str(tmp_path))
    exec(compile(python, "best.py", "exec"), {})
    ((target, arguments),) = calls
    assert target.__name__ == "bumps"
    study = StudyFolder(tmp_path / "tuned").study()
    best = min(range(6), key=lambda number: StudyFolder(tmp_path / "tuned").outcome(number).value)
    cell, position, _ = study.positions(best)
    assert arguments["algorithm"].upper() == study.cells[cell].codename
    settings = StudyFolder(tmp_path / "tuned").read_batch(study.cells[cell], 0).settings[position]
    assert arguments["init_components"] == settings["start.components"]
    stepsize = settings["component_stepsize.stepsize"]
    assert arguments["component_stepsize"]["stepsize"] == pytest.approx(stepsize, rel=1e-5)
    assert natmix("study", "run", "tuned/study.toml", "--out", "again", "--quiet").exit_code == 0


def test_tune_without_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_one_sentence(natmix("tune", "nothing.py:f"), "nothing.py")
    assert_one_sentence(natmix("tune", "f"), "A model is named module:function or file.py:function")
