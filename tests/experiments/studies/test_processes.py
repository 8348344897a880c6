"""Studies in processes: they are killed, they crash, and the results are those of an undisturbed study."""

import time

import pytest
from killed_study import (
    assert_nothing_was_lost,
    kill,
    outcomes,
    run_with_kills,
    start,
    study_text,
    workers_of,
)
from study_files import study_of

from natmix.experiments.studies.client import SilentWatcher, run_study
from natmix.experiments.studies.pools import LocalProcesses
from natmix.experiments.studies.study_folder import StudyFolder

pytestmark = pytest.mark.slow

TRIALS, ITERATIONS = 8, 8000


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("kills") / "study.toml"
    path.write_text(study_text(TRIALS, ITERATIONS))
    return path


@pytest.fixture(scope="module")
def undisturbed(file):
    out = file.parent / "whole"
    assert start(file, out).wait(280) == 0
    return outcomes(out, TRIALS)


def test_twenty_kills_change_nothing(file, undisturbed):
    out = file.parent / "killed"
    killed = run_with_kills(file, out, 20, "--jobs", 2, "--scheduler", "processes")
    assert start(file, out).wait(200) == 0
    assert outcomes(out, TRIALS) == undisturbed
    assert_nothing_was_lost(out, TRIALS)
    assert killed == 20


def test_two_clients_at_once(file, undisturbed):
    out = file.parent / "two"
    first, second = start(file, out), start(file, out)
    assert first.wait(280) == second.wait(280) == 0
    assert outcomes(out, TRIALS) == undisturbed
    attempts = [StudyFolder(out).attempts(i) for i in range(TRIALS)]
    assert all(len(each) == 1 for each in attempts)
    assert len({each[0].process for each in attempts}) == 2


def test_workers_end_with_their_client(file):
    out = file.parent / "orphans"
    client = start(file, out, "--jobs", 2, "--scheduler", "processes")
    until = time.monotonic() + 60
    while len(workers_of(out)) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    kill(client.pid)
    client.wait()
    while workers_of(out) and time.monotonic() < until + 60:
        time.sleep(0.1)
    assert not workers_of(out)


def test_a_crash_is_recorded_with_its_signal(tmp_path):
    text = study_text(1, 10).replace(":bumps", ":crashing")
    study = study_of(tmp_path, text)
    told = []

    class Told(SilentWatcher):
        def retried(self, number, why):
            told.append((number, why))

    with LocalProcesses(tmp_path / "out", 1) as pool:
        run_study(tmp_path / "out", study, pool, watcher=Told())
    outcome = StudyFolder(tmp_path / "out").outcome(0)
    assert outcome.state == "failed"
    assert outcome.reason == "its process ended by the signal SIGSEGV"
    assert told == [(0, outcome.reason)] * 3
