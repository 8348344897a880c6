"""Trials on Dask; the job script of Slurm as text."""

import subprocess
import sys
import time

import pytest
from killed_study import assert_nothing_was_lost, kill, outcomes, study_text
from study_files import study_of

from natmix.experiments.studies.client import run_study
from natmix.experiments.studies.study_folder import StudyFolder

distributed = pytest.importorskip("distributed")

from natmix.experiments.studies import dask_pool  # noqa: E402

TRIALS, ITERATIONS = 4, 4000


def test_the_job_script_of_slurm():
    pytest.importorskip("dask_jobqueue")
    settings = {"queue": "gpu", "cores": 8, "memory": "32GB", "walltime": "02:00:00", "account": "p1"}
    cluster = dask_pool.slurm_cluster(settings)
    script = cluster.job_script()
    cluster.close()
    lines = script.splitlines()
    for line in (
        "#SBATCH -p gpu",
        "#SBATCH -A p1",
        "#SBATCH -n 1",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH -t 02:00:00",
        "#SBATCH --gpus-per-task=1",
        "#SBATCH --requeue",
        "export XLA_PYTHON_CLIENT_PREALLOCATE=false",
    ):
        assert line in lines
    (worker,) = [line for line in lines if "dask_worker" in line]
    assert "--nthreads 1" in worker
    assert "--nworkers" not in worker
    assert sys.executable in worker


@pytest.mark.slow
def test_an_address_where_nobody_is(tmp_path, monkeypatch):
    with pytest.raises(ConnectionError, match=r"There is no Dask scheduler at tcp://127\.0\.0\.1:9"):
        dask_pool.at_scheduler(tmp_path, "tcp://127.0.0.1:9")


@pytest.mark.slow
def test_a_local_cluster(tmp_path):
    study = study_of(tmp_path, study_text(TRIALS, 200))
    with dask_pool.local_cluster(tmp_path / "out", 2) as pool:
        run_study(tmp_path / "out", study, pool)
    found = outcomes(tmp_path / "out", TRIALS)
    assert {state for state, *_ in found.values()} == {"complete"}
    processes = {StudyFolder(tmp_path / "out").attempts(i)[0].process for i in range(TRIALS)}
    assert len(processes) == 2


@pytest.mark.slow
def test_a_scheduler_and_a_worker_that_are_killed(tmp_path, monkeypatch):
    """The scheduler comes back at its address, workers find it again, nothing is lost."""
    port = 18786
    address = f"tcp://127.0.0.1:{port}"
    study, out = study_of(tmp_path, study_text(TRIALS, ITERATIONS)), tmp_path / "out"
    scheduler, workers = _scheduler(port), [_worker(address), _worker(address)]
    killed: list[str] = []

    class Killer:
        def settled(self, outcome, progress):
            nonlocal scheduler
            if len(killed) == 0:
                kill(workers[0].pid)
                workers.append(_worker(address))
                killed.append("worker")
            elif len(killed) == 1:
                kill(scheduler.pid)
                scheduler.wait()
                scheduler = _scheduler(port)
                killed.append("scheduler")

        def retried(self, number, why): ...

    try:
        pool = _connected(out, address)
        with pool:
            run_study(out, study, pool, watcher=Killer())
    finally:
        for process in (scheduler, *workers):
            process.kill()
            process.wait()
    assert killed == ["worker", "scheduler"]
    assert {state for state, *_ in outcomes(out, TRIALS).values()} == {"complete"}
    assert_nothing_was_lost(out, TRIALS)


def _connected(out, address):
    until = time.monotonic() + 60
    while True:
        try:
            return dask_pool.at_scheduler(out, address)
        except ConnectionError:
            if time.monotonic() > until:
                raise


def _scheduler(port):
    return _process(
        "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"
    )


def _worker(address):
    options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "120")
    return _process("distributed.cli.dask_worker", address, *options)


def _process(module, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
