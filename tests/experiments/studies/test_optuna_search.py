"""Search by Optuna, and what its dashboard reads."""

import dataclasses

import pytest
import study_files
from study_files import SMALL, SimulatedPool, outcome_of, study_of, value_of

from natmix.experiments.studies.client import opened, run_study
from natmix.experiments.studies.study_folder import StudyFolder
from natmix.experiments.studies.study_results import load_results

optuna = pytest.importorskip("optuna")

pytestmark = pytest.mark.filterwarnings("ignore")

TEXT = SMALL.replace('storage = "none"', "").replace('"S[AE]MTRUX"', '"SAMTRUX"')


def text_for(sampler="tpe", storage="journal", trials=8):
    changed = TEXT.replace('"random"', f'"{sampler}"\nstartup = 3').replace(
        "trials = 3", f"trials = {trials}"
    )
    return f'storage = "{storage}"\n{changed}'


def run(out, study, **arguments):
    pool = SimulatedPool(out, **arguments)
    run_study(out, study, pool)
    return pool


def settings_of(out):
    return [(r.settings, r.value) for r in load_results(out).cells[0].results]


@pytest.mark.parametrize("storage", ["journal", "sqlite"])
def test_the_storage_has_every_result(tmp_path, storage):
    out = tmp_path / "out"
    study = study_of(tmp_path, text_for("random", storage, 5))
    run(out, study)
    kept = _optuna_study(out, storage)
    assert [t.state.name for t in kept.trials] == ["COMPLETE"] * 5
    for trial, result in zip(kept.trials, load_results(out).cells[0].results, strict=True):
        assert trial.value == result.value
        assert trial.params.items() <= result.settings.items()
        assert trial.intermediate_values == {1: result.value + 1, 2: result.value}
        assert trial.user_attrs == {"setting": result.position}
    assert kept.best_value == load_results(out).best("gmm2")[1].value


def _optuna_study(out, storage):
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    place = (
        JournalStorage(JournalFileBackend(str(out / "optuna.log")))
        if storage == "journal"
        else RDBStorage(f"sqlite:///{out / 'optuna.db'}")
    )
    (summary,) = optuna.get_all_study_summaries(place)
    assert summary.study_name == "study/gmm2-SAMTRUX"
    return optuna.load_study(study_name=summary.study_name, storage=place)


def test_tpe_learns_from_the_results(tmp_path, monkeypatch):
    """Random settings first; later ones depend on the results, and other results give other settings."""
    chosen = {}
    for name, sign in (("low", 1), ("high", -1)):
        monkeypatch.setattr(study_files, "value_of", lambda trial, sign=sign: sign * value_of(trial))
        run(tmp_path / name, study_of(tmp_path, text_for(trials=10)))
        chosen[name] = [settings for settings, _ in settings_of(tmp_path / name)]
    startup = 4  # three, in batches of four
    assert chosen["low"][:startup] == chosen["high"][:startup]
    assert all(a != b for a, b in zip(chosen["low"][startup:], chosen["high"][startup:], strict=True))


def test_settings_depend_on_no_number_of_workers(tmp_path):
    study = study_of(tmp_path, text_for(trials=10))
    for workers in (1, 5):
        run(tmp_path / str(workers), study, workers=workers, seed=workers)
    assert settings_of(tmp_path / "1") == settings_of(tmp_path / "5")


def test_a_study_that_is_interrupted_between_asking_and_planning_chooses_the_same(tmp_path, monkeypatch):
    study = study_of(tmp_path, text_for(trials=10))
    run(tmp_path / "whole", study)
    folder = StudyFolder(tmp_path / "cut")
    write, count = StudyFolder.write_batch, []

    def killed(self, cell, batch, planned):
        count.append(batch)
        if count == [0, 1, 2]:
            raise KeyboardInterrupt
        write(self, cell, batch, planned)

    monkeypatch.setattr(StudyFolder, "write_batch", killed)
    with pytest.raises(KeyboardInterrupt):
        run(folder.path, study)
    journal = folder.path / "optuna.log"
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 5')  # a line that a kill has cut off
    run(folder.path, study)
    assert settings_of(folder.path) == settings_of(tmp_path / "whole")
    states = [trial.state.name for trial in _optuna_study(folder.path, "journal").trials]
    assert states == ["COMPLETE"] * 4 + ["FAIL"] * 2 + ["COMPLETE"] * 6


def test_pruned_and_failed_settings(tmp_path):
    folder = StudyFolder(tmp_path / "out")
    study = folder.create(study_of(tmp_path, text_for("random", trials=2)))
    progress = opened(folder, study)
    first, second = progress.next(), progress.next()
    folder.write_outcome(outcome_of(first, 3.0, state="pruned", reason="pruned", curve=[3.0]))
    failed = dataclasses.replace(
        outcome_of(second, 1.0), state="failed", value=None, reason="Boom.", curve=[]
    )
    folder.write_outcome(failed)
    progress.settle(first)
    progress.settle(second)
    trials = _optuna_study(folder.path, "journal").trials
    assert [trial.state.name for trial in trials] == ["PRUNED", "FAIL"]
    assert trials[0].value == 3.0
    assert trials[1].user_attrs["reason"] == "Boom."


def test_a_grid_with_joint_choices_is_shown_too(tmp_path):
    text = text_for("grid").replace("trials = 8", "")
    text = text.replace("integer = true }", "integer = true, points = 2 }").replace(
        "log = true }", "log = true, points = 3 }"
    )
    text += "\n[[space]]\ntogether = [{ temperature = 1.0 }, { temperature = 2.0 }]\n"
    out = tmp_path / "out"
    run(out, study_of(tmp_path, text))
    trials = _optuna_study(out, "journal").trials
    assert len(trials) == 2 * 3 * 2 * 2
    for trial, (settings, _) in zip(trials, settings_of(out), strict=True):
        assert settings["temperature"] == 1.0 + trial.params["together"]
    assert all(
        trial.value == pytest.approx(value)
        for trial, (_, value) in zip(trials, settings_of(out), strict=True)
    )


def test_a_storage_that_cannot_be_opened(tmp_path):
    study = study_of(tmp_path, text_for(storage="nonsense://nowhere/x"))
    with pytest.raises(ValueError, match="The storage 'nonsense://nowhere/x' cannot be opened"):
        run(tmp_path / "out", study)
