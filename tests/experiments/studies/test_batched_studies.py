"""Studies whose processes run several trials at once: the outcomes are those of single trials."""

import os
import subprocess
import sys
import time

import batched_study
import numpy as np
import pytest
import study_model
from killed_study import assert_nothing_was_lost, kill, progress_of, run_with_kills, start
from study_files import study_of
from tiny_problem import spot

from natmix.engine.memory import bytes_needed
from natmix.experiments.studies.batch_form import BatchForm, affordable_slots
from natmix.experiments.studies.client import SilentWatcher, opened, run_study
from natmix.experiments.studies.own_cores import CoreShare
from natmix.experiments.studies.pools import Held, InProcess, LocalProcesses
from natmix.experiments.studies.slots import slots_for
from natmix.experiments.studies.study_folder import Attempt, StudyFolder
from natmix.experiments.studies.trial_attempt import SUSPICIOUS_DEATHS, note_crash, planned_trial, terms_of
from natmix.experiments.studies.trial_batch import TrialBatch
from natmix.experiments.studies.trial_runner import AbstractTrialRunner
from natmix.experiments.studies.trial_slots import WAITING, attempt_trials
from natmix.files.seal import DamagedFileError
from natmix.gaussians import FAMILIES
from natmix.modules.hyperparameters import ShapeBounds

pytestmark = pytest.mark.usefixtures("quick_compilation")

FORMS = {
    "together": batched_study.TOGETHER,
    "turns": BatchForm(False, ShapeBounds(32, 4), ShapeBounds(16, 4)),
}
TEXT = f"""
codenames = ["SEMTR[OU]X"]
storage = "none"
dtype = "float64"
[[problem]]
model = "{study_model.__file__}:bumps"
dim = 2
init_scale = 3.0
[budget]
iterations = ITERATIONS
[run]
checkpoint_seconds = 0.2
[search]
trials = 4
batch = 2
[[space]]
start.components = {{ low = 1, high = 4, integer = true }}
sample_selector.desired_samples = [10, 20]
sample_selector.reuse_ratio = 0.0
component_stepsize.stepsize = {{ low = 1e-2, high = 0.5, log = true }}
"""
TRIALS = 8


def text(iterations):
    return TEXT.replace("ITERATIONS", str(iterations))


def assert_same_outcomes(here, there, numbers=range(TRIALS)):
    for number in numbers:
        a, b = (StudyFolder(folder).outcome(number) for folder in (here, there))
        for name in ("state", "iterations", "evaluations", "components"):
            assert getattr(a, name) == getattr(b, name), (number, name)
        np.testing.assert_allclose(a.value, b.value, rtol=1e-6)


class Told(SilentWatcher):
    """Keeps the order in which trials end."""

    def __init__(self):
        self.ended, self.again = [], []

    def settled(self, outcome, progress):
        self.ended.append(outcome.number)

    def retried(self, number, why):
        self.again.append(number)


@pytest.fixture
def form(request, monkeypatch):
    monkeypatch.setattr(
        "natmix.experiments.studies.trial_batch.batch_form", lambda limits: FORMS[request.param]
    )
    return request.param


@pytest.fixture(scope="module")
def singly(tmp_path_factory):
    """The study by one trial after another."""
    folder = tmp_path_factory.mktemp("singly")
    with InProcess(folder / "out") as pool:
        run_study(folder / "out", study_of(folder, text(25)), pool)
    return folder / "out"


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_a_study_by_batches_has_the_outcomes_of_single_trials(form, singly, tmp_path, monkeypatch):
    made = []

    class Counted(TrialBatch):
        def __init__(self, terms, slots):
            super().__init__(terms, slots)
            made.append(self)

    monkeypatch.setattr("natmix.experiments.studies.trial_slots.TrialBatch", Counted)
    out, told = tmp_path / "out", Told()
    with InProcess(out, slots=2) as pool:
        assert pool.free == 2 * (1 + WAITING)
        run_study(out, study_of(tmp_path, text(25)), pool, watcher=told)
    assert_same_outcomes(out, singly)
    assert told.again == []
    # Trials of one codename share a batch, whose slots are taken again; in turns both codenames do.
    assert len(made) == (2 if form == "together" else 1)
    assert [number % 2 for number in told.ended] == [0] * 4 + [1] * 4


@pytest.mark.slow
@pytest.mark.parametrize("form", ["together"], indirect=True)
def test_failing_trials_disturb_no_other(form, tmp_path, monkeypatch):
    """One diverges, one cannot begin; by batches and one by one they end alike."""
    radii = [1e9, 0.9, 0.0, 1e8]
    monkeypatch.setattr("natmix.experiments.studies.divergence.PATIENCE", 1)
    monkeypatch.setattr(
        "natmix.experiments.studies.trial_attempt.load_problem", lambda study, trial: spot(radii[trial.seed])
    )
    study = study_of(tmp_path, text(30).replace("[OU]", "U"), trials=1, seeds=(0, 1, 2, 3))
    for slots in (1, 4):
        with InProcess(tmp_path / str(slots), slots=slots) as pool:
            run_study(tmp_path / str(slots), study, pool)
    batched, single = (StudyFolder(tmp_path / str(slots)) for slots in (4, 1))
    for number in (1, 2):
        here, there = batched.outcome(number), single.outcome(number)
        assert here.state == "failed"
        assert (here.reason, here.iterations, here.evaluations, here.attempts) == (
            there.reason,
            there.iterations,
            there.evaluations,
            there.attempts,
        )
    assert "diverged: in iterations" in batched.outcome(1).reason
    assert batched.outcome(1).attempts == 1  # it would diverge again
    assert batched.outcome(2).attempts == 3
    assert_same_outcomes(batched.path, single.path, (0, 3))


@pytest.mark.slow
def test_a_batch_that_is_killed_goes_on(tmp_path):
    """The process ends by SIGKILL in the midst, several times."""
    file = tmp_path / "study.toml"
    file.write_text(text(3000))
    command = [sys.executable, batched_study.__file__, str(file)]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*command, str(whole), "3"], check=True, timeout=250)
    for _ in range(3):
        before, until = progress_of(killed), time.monotonic() + 100
        process = subprocess.Popen([*command, str(killed), "3"])
        while progress_of(killed) <= before and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        kill(process.pid)
        process.wait()
    subprocess.run([*command, str(killed), "3"], check=True, timeout=250)
    assert_same_outcomes(killed, whole)
    assert_nothing_was_lost(killed, TRIALS)
    attempts = [StudyFolder(killed).attempts(number) for number in range(TRIALS)]
    assert any(len(each) > 1 for each in attempts)


@pytest.mark.slow
def test_processes_with_slots_that_are_killed(tmp_path):
    """Workers and clients die; each worker runs three trials."""
    file = tmp_path / "study.toml"
    file.write_text(text(4000))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(file, whole).wait(280) == 0
    assert run_with_kills(file, killed, 4, "--jobs", 2, "--scheduler", "processes", "--slots", 3) > 1
    assert start(file, killed).wait(200) == 0
    assert_same_outcomes(killed, whole)
    assert_nothing_was_lost(killed, TRIALS)
    two = tmp_path / "two"
    first, second = (start(file, two, "--slots", 3) for _ in range(2))
    assert first.wait(280) == second.wait(280) == 0
    assert_same_outcomes(two, whole)
    attempts = [StudyFolder(two).attempts(number) for number in range(TRIALS)]
    assert all(len(each) == 1 for each in attempts)
    assert len({each[0].process for each in attempts}) == 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are shared on Linux alone")
def test_batches_on_a_cluster_of_dask(singly, tmp_path):
    """A task has trials of one codename; each worker has its share of the cores."""
    pytest.importorskip("distributed")
    from natmix.experiments.studies import dask_pool

    out = tmp_path / "out"
    with dask_pool.local_cluster(out, 2, slots=2) as pool:
        assert pool.free == 2 * 2 * 2 * (1 + WAITING)
        run_study(out, study_of(tmp_path, text(25)), pool)
        client = vars(pool)["_client"]
        found = [
            sorted(client.submit(os.sched_getaffinity, 0, workers=[worker], pure=False).result())
            for worker in client.scheduler_info(n_workers=-1)["workers"]
        ]
    cores = sorted(os.sched_getaffinity(0))
    assert sorted(found) == sorted(CoreShare(place, 2).of(cores) for place in range(2))
    assert_same_outcomes(out, singly)
    attempts = [StudyFolder(out).attempts(number) for number in range(TRIALS)]
    assert [len(each) for each in attempts] == [1] * TRIALS
    assert len({each[0].process for each in attempts}) == 2


# Bookkeeping ------------------------------------------------------------------------------------


SEEN: list[list[int]] = []
"""The trials that a `Failing` runner had at once."""


class Failing(AbstractTrialRunner):
    """Takes trials, and fails when it should advance them."""

    def __init__(self, terms, slots):
        self.slots, self.now = slots if isinstance(slots, int) else 1, []

    @property
    def free(self):
        return self.slots - len(self.now)

    def fits(self, trial):
        return True

    def submit(self, trial):
        self.now.append(trial.number)

    def advance(self):
        SEEN.append(list(self.now))
        raise RuntimeError("Boom.")

    def stop(self, number): ...
    def close(self): ...


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """The folder of a study whose batches and single trials fail, and its first trials of one codename."""
    monkeypatch.setattr("natmix.experiments.studies.trial_slots.TrialBatch", Failing)
    SEEN.clear()
    folder = StudyFolder(tmp_path / "out")
    progress = opened(folder, folder.create(study_of(tmp_path, text(25))))
    numbers = [progress.next(lambda cell: cell == 0) for _ in range(3)]
    assert numbers == [0, 2, 4]
    return folder, numbers


def test_after_an_error_of_a_batch_its_trials_run_alone(failing):
    """So that the next error is counted for the one whose it is."""
    folder, numbers = failing
    assert attempt_trials(folder.path, numbers, 4, runner=Failing) == [(n, "again") for n in numbers]
    attempt_trials(folder.path, numbers, 4, runner=Failing)
    assert [numbers, *([n] for n in numbers)] == SEEN
    assert [len(folder.attempts(n)) for n in numbers] == [4] * 3


@pytest.mark.parametrize("kills", [SUSPICIOUS_DEATHS - 1, SUSPICIOUS_DEATHS])
def test_a_trial_whose_process_was_killed_often_runs_alone(kills, failing):
    folder, numbers = failing
    for _ in range(kills):
        folder.note(numbers[1], Attempt("begin", 0, "", ""))
    attempt_trials(folder.path, numbers, 4, runner=Failing)
    together = [numbers] if kills < SUSPICIOUS_DEATHS else [[0, 4], [2]]
    assert together == SEEN


def test_a_crash_is_counted_for_the_trials_that_ran(failing):
    folder, numbers = failing
    folder.note(numbers[0], Attempt("begin", 0, "", ""))
    for number in numbers[:2]:
        note_crash(folder, number, "its process ended by the signal SIGSEGV")
    assert [[each.event for each in folder.attempts(n)] for n in numbers[:2]] == [["begin", "error"], []]


def test_a_crash_before_the_beginning_is_counted_too(failing):
    """Such as by a damaged plan: it must not be tried for ever."""
    folder, numbers = failing
    plan = folder.batch_file(folder.study().cells[0], 0)
    plan.write_text(plan.read_text().replace("bars", "bras"))
    with pytest.raises(DamagedFileError):
        attempt_trials(folder.path, numbers, 4, runner=Failing)
    for number in numbers:
        note_crash(folder, number, "its process ended with the exit code 1")
    assert [[each.event for each in folder.attempts(n)] for n in numbers] == [["begin", "error"], [], []]


def test_processes_are_given_trials_of_one_codename(tmp_path, monkeypatch):
    """First as many as they have slots, on as many processes as there are; then more of the same."""

    class Process:
        def __init__(self, folder, slots, share, ended):
            self.held, self.share = Held(slots), share

        def submit(self, number, cell):
            self.held.take(number, cell)

    monkeypatch.setattr("natmix.experiments.studies.pools._TrialProcess", Process)
    study = study_of(tmp_path, text(25), trials=40)
    StudyFolder(tmp_path / "out").create(study)
    pool = LocalProcesses(tmp_path / "out", 3, slots=2)
    assert pool.free == 3 * 2 * (1 + WAITING)
    for number in (0, 2, 4, 6, 8, 10):
        assert pool.fits(0)
        pool.submit(number)
    assert [sorted(worker.held.numbers) for worker in pool._workers] == [[0, 2], [4, 6], [8, 10]]
    assert not pool.fits(1)
    pool.submit(12)
    assert sorted(pool._workers[0].held.numbers) == [0, 2, 12]
    pool._workers[1].held.numbers.clear()
    assert pool.fits(1)
    pool.submit(1)
    assert [worker.held.cell for worker in pool._workers] == [0, 1, 0]
    shares = [vars(worker)["share"] for worker in pool._workers]
    assert shares == [(0, 3), (1, 3), (2, 3)]


def test_fewer_slots_where_memory_is_short(tmp_path, monkeypatch):
    folder = StudyFolder(tmp_path / "out")
    study = folder.create(study_of(tmp_path, text(25)))
    number = opened(folder, study).next()
    one = planned_trial(folder, study, number)
    terms, form = terms_of(folder, study, "bumps"), batched_study.TOGETHER
    config = terms.configure(one, terms.load(one))
    algorithm = form.algorithm(config)
    need = bytes_needed(algorithm, FAMILIES["full"], 2, "float64", form.first_slots(config)).total
    monkeypatch.setattr("natmix.engine.memory._SMALL", 0)
    for free, slots in ((100 * need, 16), (9 * need, 8), (need // 2, 1), (None, 16)):
        monkeypatch.setattr("natmix.engine.memory.free_memory", lambda free=free: free)
        assert affordable_slots(16, config, algorithm, form) == slots


def test_slots_by_the_machine_and_the_budget(tmp_path, monkeypatch):
    study = study_of(tmp_path, text(25))
    timed = study_of(tmp_path, text(25).replace("iterations = 25", "seconds = 9"))
    monkeypatch.setattr("natmix.experiments.studies.slots.visible_devices", lambda: ["0"])
    assert (slots_for(study, None), slots_for(timed, None), slots_for(study, 5)) == (16, 1, 5)
    monkeypatch.setattr("natmix.experiments.studies.slots.visible_devices", list)
    assert slots_for(study, None) == 1
    with pytest.raises(ValueError, match="The budget on bumps has a limit of time"):
        slots_for(timed, 2)
    with pytest.raises(ValueError, match="--slots must be at least 1"):
        slots_for(study, 0)
